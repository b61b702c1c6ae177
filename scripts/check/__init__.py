"""All checks of the project by name: `checks.toml` lists them, `make check` runs them, `build/check.json` has what each came to."""
