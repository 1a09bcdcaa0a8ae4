"""From spaces to rows: what is measured, beside what the study prints and claims."""
