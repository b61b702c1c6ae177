"""What the state of a Spark query holds back, and until when.

`rules` says which watermark a row's effect waits for, operator by operator, `recognise` finds the
operators in a query's plan, `windows` what Spark makes of a window there, `message` those of a Connect client; `entries` which slots are held for
that, batch by batch, and under which names; `bounds` how far a query has absorbed, by its logs
and by what it is asked while it is `running`; `chosen` whether its state is held when it starts; `recorded` what
is kept of that beside its logs; `holds` puts them together for its ticks.
"""
