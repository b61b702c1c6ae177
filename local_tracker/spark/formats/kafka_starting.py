"""A query that is going to write a topic by Kafka's own sink: what is refused of it, and what it claims."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from local_tracker.spark.formats.brokers import JvmTopic
from local_tracker.spark.formats.kafka_sink import SunkTopic, TopicSink, topic_output
from local_tracker.spark.formats.sinks import Outputs, RunningSink, Sink, SinkPlan
from local_tracker.spark.session import connect
from tracker.errors import TrackingError


class KafkaSink(Sink):
    """The topic that a query of Kafka's own sink writes, if what it creates is there."""

    _topic: TopicSink | None = None

    def check(self) -> None:
        pass

    def open(self) -> None:
        """Raises TrackingError where what the batches write cannot be told, StateError as `TopicSink.check`, and
        UnavailableError."""
        plan = self.plan
        planned, creates = plan.planned, plan.routes.creates
        if not creates:
            return
        if refused := _refused(plan):
            raise TrackingError(
                f"query {plan.node_id!r} writes to Kafka, and creates there: {refused}"
            )
        name = planned.options["topic"]
        topic = JvmTopic(planned.session, name, planned.options)
        names = dict(zip(plan.creates, creates, strict=True))
        sink = TopicSink(plan.place_of(name), topic, names, plan.query_id, topic.close)
        assert plan.checkpoint is not None
        try:
            sink.check(plan.checkpoint)
        except BaseException:
            sink.close()
            raise
        self._topic = sink

    def begin(self) -> None:
        if self._topic is not None:
            self._topic.begin()

    def has(self, batch: int) -> bool:
        return False  # Spark writes each batch anew

    def outputs(self, running: RunningSink) -> Outputs:
        if (sink := self._topic) is None:
            return tuple
        output = topic_output(sink, self.plan.routes.creates, SunkTopic(sink))
        return lambda: (output,)

    def at_rest(self) -> Callable[[], Sequence[TopicSink]] | None:
        sink = self._topic
        return None if sink is None else lambda: [sink]

    def close(self) -> None:
        if self._topic is not None:
            self._topic.close()


def _refused(plan: SinkPlan) -> str | None:
    """Why what a query's batches write to Kafka cannot be told; None if it can."""
    planned, routes = plan.planned, plan.routes
    options = {name.lower(): value for name, value in planned.options.items()}
    if connect.is_remote(planned.session):
        return connect.NO_BROKERS
    if "topic" not in options:
        return "name the one topic by .option('topic', ...), not by a column"
    if planned.checkpoint is None:
        return "it needs a checkpointLocation, by which it is known when it is started again"
    if options.get("kafka.acks", "all") not in ("all", "-1"):
        return "kafka.acks must be all, else records that a batch has written may be lost"
    if planned.trigger == "RealTimeTrigger":
        return "a real-time trigger plans its batches after they have written; use processingTime"
    if options.get("asyncprogresstrackingenabled", "false").lower() == "true":
        return "asyncProgressTrackingEnabled plans batches after they have written; leave it out"
    if plan.emits is not None:
        return f"emits={plan.emits!r} is for files and tracked.writer(...); leave it out"
    if by_rows := [n for n in routes.creates if n in routes.rows]:
        return f"segment {routes.spec.segments[by_rows[0]]!r} is tracked by rows, which files have"
    if routes.leads_back():
        return "what it creates leads back to what it reads; write files, or a topic of another pipeline"
    return None
