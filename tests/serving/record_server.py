"""A server of records in a thread of the tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from headway.processing.firefox_files import read_models
from headway.serving.options import ServeOptions, listening
from tests.serving.conftest import wait


@contextmanager
def serving_records(folder: Path) -> Iterator[str]:
    """The address of a server of the exports in a folder."""
    import uvicorn

    from headway.serving.records import build_records

    with listening(ServeOptions(port=0)) as bound:
        address = f"http://127.0.0.1:{bound.getsockname()[1]}"
        app = build_records([read_models(folder)], address)
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
        thread = Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        wait(lambda: server.started)
        try:
            yield address
        finally:
            server.should_exit = True
            thread.join()
