"""From rows to what a reader sees: tables, figures, the report, the files of a run."""
