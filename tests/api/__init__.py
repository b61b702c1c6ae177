"""The API over HTTP, tried with real processes and real clients: `make api`."""
