"""A plugin for the tests: a readout, an evolution, a task, an experiment and a foreign mixer."""
