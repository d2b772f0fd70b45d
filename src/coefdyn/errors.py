"""What a user can put right."""


class ConfigError(ValueError):
    """What was asked for cannot be done; the message is one sentence for the user."""
