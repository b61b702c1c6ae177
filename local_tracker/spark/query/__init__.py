"""What a query is to the tracker: where its input comes from, what each batch that is over means, the one tick that says so."""
