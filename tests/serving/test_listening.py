"""The socket that a service listens on."""

import pytest

from costmodel.errors import CostModelError
from costmodel.serving.listening import listen


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_port_is_listened_on_once(host: str) -> None:
    """A free port has a URL; a port that is in use is an error that says what to do."""
    try:
        listening, url = listen(host, 0, 5)
    except CostModelError as error:
        pytest.skip(str(error))
    with listening:
        port = listening.getsockname()[1]
        assert url == f"http://{'[::1]' if ':' in host else host}:{port}"
        with pytest.raises(CostModelError, match=rf"port {port} of {host} is in use: choose another with --port"):
            listen(host, port, 5)


def test_an_address_of_another_host_is_refused() -> None:
    """An address that this host does not have cannot be listened on."""
    with pytest.raises(CostModelError, match=r"192\.0\.2\.1, port 0, cannot be listened on .*--host and --port"):
        listen("192.0.2.1", 0, 5)
