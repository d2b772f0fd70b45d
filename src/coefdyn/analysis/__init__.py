"""From trained models and records to numbers, tables and figures."""
