"""The flags of the admission webhook: what cannot work is said before anything is started."""

import pytest

from multimirror.cli import main


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--admission-url", "http://127.0.0.1:9443/admit"], "must be https://HOST:PORT/admit"),
        (["--admission-url", "https://127.0.0.1:9443/"], "must be https://HOST:PORT/admit"),
        (["--admission-url", "https://127.0.0.1:9443/admit", "--admission-service", "s"], "give only one of them"),
        (["--admission-service", "s", "--admission-address", "9443x"], "'--admission-address': '9443x' is no address"),
        (["--health-address", "here"], "'--health-address': 'here' is no address"),
    ],
)
def test_flags_that_make_no_sense_are_refused(
    flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *flags]) == 2
    assert message in capsys.readouterr().err
