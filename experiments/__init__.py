"""The study, table by table; each experiment is `python -m experiments.NAME`."""
