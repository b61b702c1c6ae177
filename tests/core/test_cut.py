"""The cut against its oracle (rule 6)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tracker.core.cut.vectors import Vectors

shards = st.integers(0, 3)
moves = st.one_of(
    st.tuples(st.just("take"), shards, st.lists(st.tuples(shards, st.integers(0, 6)), max_size=4)),
    st.tuples(st.sampled_from(("add", "remove")), shards),
    st.tuples(st.just("home"), st.integers(4, 5)),
)


@given(st.lists(moves, max_size=30))
def test_the_cut_is_the_least_of_all_vectors_and_never_falls(
    moves: list[tuple[object, ...]],
) -> None:
    vectors, known = Vectors((0, 1)), {0: dict[int, int](), 1: dict[int, int]()}
    due = {0: 0, 1: 0}
    for what, which, *applied in moves:
        assert isinstance(which, int)
        before = dict(due)
        if what == "take" and which in known:
            known[which].update(applied[0])  # type: ignore[call-overload]
        elif what == "add":
            known.setdefault(which, {})
            due.setdefault(which, 0)
            vectors.add_shard(which)
            continue
        elif what == "remove" and known.keys() - {which}:
            known.pop(which, None)
        elif what == "home":
            due.setdefault(which, 0)
            vectors.add_home(which)
            continue
        else:
            continue
        for home, cut in before.items():
            due[home] = max(cut, min(vector.get(home, 0) for vector in known.values()))
        if what == "take":
            assert vectors.take(which, applied[0]) == (due != before)  # type: ignore[arg-type]
        else:
            vectors.remove_shard(which)
        assert vectors.cut == due
        vectors.validate()
