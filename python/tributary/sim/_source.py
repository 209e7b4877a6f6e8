"""An experiment in any form that people give: a path, a file's text, or a dict."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tributary.errors import ConfigError

#: A path to a file, its text (a string of several lines), or its content as a mapping.
Config: TypeAlias = str | os.PathLike[str] | Mapping[str, Any]


@dataclass(frozen=True)
class Source:
    """The text that the program reads."""

    text: str
    #: The text is JSON and not TOML.
    json: bool
    #: The file, if there is one.
    path: Path | None = None

    def wrong(self, error: ConfigError) -> ConfigError:
        """Name the file in an error, as the program does."""
        return error if self.path is None else ConfigError(f"{self.path}: {error}")


def read(config: Config) -> Source:
    """Read an experiment, in whatever form it comes."""
    if isinstance(config, Mapping):
        return Source(_as_json(config), json=True)
    if isinstance(config, str) and "\n" in config:
        return Source(config, json=False)
    if not isinstance(config, (str, os.PathLike)):
        raise ConfigError(f"an experiment is a path, the text of a file or a dict, not {type(config).__name__}")
    path = Path(config)
    try:
        return Source(path.read_text(encoding="utf-8"), json=False, path=path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror} (os error {error.errno})") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"cannot read {path}: it is not UTF-8 text") from error


def _as_json(config: Mapping[str, Any]) -> str:
    try:
        return json.dumps(_plain(config), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the experiment holds what no file can: {error}") from error


def _plain(value: Any) -> Any:
    """Convert mappings, sequences and numpy's values to plain ones. A key whose value is None counts as left out."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, (list, tuple)):
        if any(inner is None for inner in value):
            raise ValueError("None in a list; in a sweep, a line that does not name a key leaves it out")
        return [_plain(inner) for inner in value]
    # Numpy's arrays and elements have this method.
    return value.tolist() if hasattr(value, "tolist") else value
