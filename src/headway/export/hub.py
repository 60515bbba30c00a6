"""`headway push` and `headway pull`: exports on the hub of Hugging Face, or on a server that speaks as it does."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from headway.errors import RunError, UserError, not_installed, option
from headway.export.exporting import PARITY
from headway.log import say
from headway.processing.pretrained import hub_errors
from headway.runs.run_folder import CARD
from headway.storage import check_new, put_in_place, workspace


@contextmanager
def _hub(where: str) -> Iterator[Any]:
    """The library, whose errors become errors of headway that name `where`."""
    if find_spec("huggingface_hub") is None:
        raise not_installed("this", ["huggingface_hub"], "pretrained", where)
    import huggingface_hub
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        yield huggingface_hub
    except RevisionNotFoundError as error:
        raise UserError(
            f"the repository has no such revision ({_first_line(error)})", where=option("revision")
        ) from error
    except (HFValidationError, RepositoryNotFoundError) as error:
        raise UserError(f"the hub has no such repository ({_first_line(error)})", where=where) from error
    except hub_errors() as error:
        hub = f"the hub (HF_ENDPOINT={_endpoint()})" if _endpoint() else "the hub"
        raise RunError(f"{where}: {hub} did not answer as it should ({_first_line(error)})") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _endpoint() -> str | None:
    """The server named by the environment variable HF_ENDPOINT; None for the hub itself."""
    return os.environ.get("HF_ENDPOINT") or None


def push(folder: Path, repository: str, *, private: bool = False, message: str = "Exported by headway") -> str:
    """Upload an export, all of its files in one commit, and give its address.

    Args:
        folder: what `headway export` wrote.
        repository: `OWNER/NAME`; it is made where it is not there.
        private: whether a repository that is made is seen by its owner alone.
        message: of the commit.

    Raises:
        UserError: a folder that is no export, or a name that is none.
        RunError: the hub refuses, or cannot be reached.
    """
    missing = [name for name in (CARD, PARITY) if not (folder / name).is_file()]
    if missing:
        what = f"this folder is no export: it has no {' and no '.join(missing)}"
        raise UserError(what, where=option("folder"), received=str(folder), allowed="what headway export wrote")
    with _hub(option("repository")) as hub:
        api = hub.HfApi(endpoint=_endpoint())
        api.create_repo(repository, private=private, exist_ok=True)
        commit = api.upload_folder(repo_id=repository, folder_path=str(folder), commit_message=message)
    return str(commit.commit_url)


def pull(repository: str, output: Path, *, revision: str | None = None) -> None:
    """Download a repository into a folder, which appears when all of it is there.

    Args:
        repository: `OWNER/NAME`.
        output: a folder that does not exist yet.
        revision: a branch, tag or commit; the main branch by default.

    Raises:
        UserError: no such repository or revision, or a folder that is there already.
        RunError: the hub refuses, or cannot be reached.
    """
    check_new(output, "output")
    with workspace(output.absolute().parent) as space, _hub(option("repository")) as hub:
        hub.snapshot_download(
            repository, revision=revision, local_dir=str(space / "files"), cache_dir=str(space / "cache"),
            endpoint=_endpoint(),
        )  # fmt: skip
        _leave_out_notes(space / "files")
        put_in_place(space / "files", output)
    say(f"{output}: {sum(1 for file in output.rglob('*') if file.is_file())} files of {repository}")


def _leave_out_notes(folder: Path) -> None:
    """Remove the folder in which the library notes what it has downloaded."""
    shutil.rmtree(folder / ".cache", ignore_errors=True)
