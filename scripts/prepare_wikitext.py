"""WikiText to tokens: python scripts/prepare_wikitext.py source=<dir|hub> tokenizer=<dir|hub>"""

import sys

from coefdyn.config.compose import raw
from coefdyn.errors import ConfigError
from coefdyn.tasks.text.prepare import prepare

if __name__ == "__main__":
    try:
        sys.exit(prepare(raw(sys.argv[1:], "prepare_wikitext")))
    except ConfigError as error:
        sys.exit(f"error: {error}")
