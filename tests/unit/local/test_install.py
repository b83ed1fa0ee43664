"""Getting the binaries: official release (a server of our own here) first, Go (a stand-in here) second."""

import hashlib
import io
import sys
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from clusters.local import versions
from clusters.local.__main__ import main
from clusters.local.binaries import ALL, BinariesMissingError
from clusters.local.gobuild import GoToolchain, etcd_go_mod, kubernetes_go_mod, linker_flags
from clusters.local.install import NoWayError, install
from clusters.local.progress import Progress
from clusters.local.release import ChecksumError, Release

V = versions.DEFAULT
PLATFORM = Release().platform
PADDING = "# " + "x" * 400_000 + "\n"  # so that a transfer can be cut in the middle


def program_text(name: str) -> bytes:
    said = {"etcd": f"etcd Version: {versions.ETCD}", "kubectl": f"Client Version: v{V}"}
    return f"#!/bin/sh\necho '{said.get(name, f'Kubernetes v{V}')}'\n{PADDING}".encode()


class Site(ThreadingHTTPServer):
    """A file server with ranges that counts requests and can break off."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.cut_after: dict[str, int] = {}

    @property
    def release(self) -> Release:
        url = f"http://127.0.0.1:{self.server_port}"
        return Release(f"{url}/k8s", f"{url}/etcd")


class _Handler(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.asked.append((self.path, wanted))
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        cut = self.server.cut_after.pop(self.path, None)
        self.wfile.write(content[start : None if cut is None else start + cut])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[Site]:
    server = Site()
    for name in ALL[1:]:
        path = f"/k8s/v{V}/bin/{PLATFORM}/{name}"
        server.files[path] = program_text(name)
        server.files[f"{path}.sha256"] = hashlib.sha256(program_text(name)).hexdigest().encode()
    archive = io.BytesIO()
    folder = f"etcd-v{versions.ETCD}-{PLATFORM.replace('/', '-')}"
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name in ("etcdctl", "etcd"):
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(program_text("etcd"))
            tar.addfile(member, io.BytesIO(program_text("etcd")))
    server.files[f"/etcd/v{versions.ETCD}/{folder}.tar.gz"] = archive.getvalue()
    sums = f"{'0' * 64}  other.tar.gz\n{hashlib.sha256(archive.getvalue()).hexdigest()}  {folder}.tar.gz\n"
    server.files[f"/etcd/v{versions.ETCD}/SHA256SUMS"] = sums.encode()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/bin:/usr/bin")
    return tmp_path / "cache" / "multimirror" / "bin" / str(V)


@pytest.fixture
def quiet() -> Progress:
    return Progress(io.StringIO())


def test_every_program_comes_from_the_release_with_its_checksum_verified(
    site: Site, cache: Path, quiet: Progress
) -> None:
    install(V, release=site.release, progress=quiet)
    assert {path.name for path in cache.iterdir() if not path.name.startswith(".")} == set(ALL)
    assert (cache / "kube-apiserver").read_bytes() == program_text("kube-apiserver")
    assert [path for path, _ in site.asked if path.endswith((".sha256", "SHA256SUMS"))].__len__() == len(ALL)


def test_programs_that_are_there_are_not_fetched_again(site: Site, cache: Path, quiet: Progress) -> None:
    install(V, release=site.release, programs=["etcd", "kube-apiserver"], progress=quiet)
    site.asked.clear()
    install(V, release=site.release, programs=["etcd", "kube-apiserver", "kubectl"], progress=quiet)
    assert {path.rpartition("/")[2] for path, _ in site.asked} == {"kubectl", "kubectl.sha256"}


def test_a_download_that_broke_off_goes_on_where_it_stopped(site: Site, cache: Path, quiet: Progress) -> None:
    path = f"/k8s/v{V}/bin/{PLATFORM}/kube-apiserver"
    site.cut_after[path] = 300_000
    install(V, release=site.release, programs=["kube-apiserver"], progress=quiet)
    assert [wanted for asked, wanted in site.asked if asked == path] == [None, "bytes=300000-"]
    assert (cache / "kube-apiserver").read_bytes() == program_text("kube-apiserver")


def test_a_download_that_an_earlier_run_began_is_finished(site: Site, cache: Path, quiet: Progress) -> None:
    cache.mkdir(parents=True)
    (cache / ".kubectl.download").write_bytes(program_text("kubectl")[:1000])
    install(V, release=site.release, programs=["kubectl"], progress=quiet)
    assert (f"/k8s/v{V}/bin/{PLATFORM}/kubectl", "bytes=1000-") in site.asked
    assert (cache / "kubectl").read_bytes() == program_text("kubectl")


def test_a_wrong_checksum_is_an_error_and_leaves_nothing_to_run(site: Site, cache: Path, quiet: Progress) -> None:
    site.files[f"/k8s/v{V}/bin/{PLATFORM}/kubectl.sha256"] = b"0" * 64
    with pytest.raises(ChecksumError, match="published is 0000"):
        install(V, release=site.release, programs=["kubectl"], progress=quiet)
    assert not list(cache.glob("*kubectl*"))
    assert not list(cache.glob(".kubectl*"))


def test_a_program_of_another_version_is_not_put_in_place(site: Site, cache: Path, quiet: Progress) -> None:
    other = b"#!/bin/sh\necho 'Kubernetes v1.30.0'\n"
    path = f"/k8s/v{V}/bin/{PLATFORM}/kube-apiserver"
    site.files[path], site.files[f"{path}.sha256"] = other, hashlib.sha256(other).hexdigest().encode()
    with pytest.raises(BinariesMissingError, match=r"kube-apiserver was to be 1\.36\.4, but says that it is 1\.30\.0"):
        install(V, release=site.release, programs=["kube-apiserver"], progress=quiet)
    assert not (cache / "kube-apiserver").exists()


FAKE_GO = f"""#!{sys.executable}
import json, os, pathlib, sys
here = pathlib.Path(__file__).parent
with (here / "calls").open("a") as calls:
    print(json.dumps(sys.argv[1:]), file=calls)
if os.environ.get("GO_FAILS"):
    print("go: no such module", file=sys.stderr)
    sys.exit(1)
if sys.argv[1:3] == ["mod", "download"]:
    (here / "go.sum").write_text("upstream pins\\n")
    (here / "up.mod").write_text("go 1.26.0\\nreplace (\\n\\tk8s.io/api => ./staging/src/k8s.io/api\\n)\\n")
    (here / "up.info").write_text(json.dumps({{"Time": "2026-08-20T11:51:43Z"}}))
    print(json.dumps({{"GoMod": str(here / "up.mod"), "Dir": str(here), "Info": str(here / "up.info")}}))
elif sys.argv[1] == "list":
    print("a\\nb\\nc")
else:
    name = sys.argv[-1].rpartition("/")[2]
    (here / f"{{name}}.go.mod").write_text(pathlib.Path("go.mod").read_text())
    (here / f"{{name}}.env").write_text(json.dumps(dict(os.environ)))
    print("a\\nb\\nc", file=sys.stderr)
    said = "etcd Version: {versions.ETCD}" if name == "v3" else "Kubernetes v{V}"
    pathlib.Path(sys.argv[sys.argv.index("-o") + 1]).write_text(f"#!/bin/sh\\necho '{{said}}'\\n")
"""


@pytest.fixture
def go(tmp_path: Path) -> GoToolchain:
    (tmp_path / "path").mkdir()
    path = tmp_path / "path" / "go"
    path.write_text(FAKE_GO)
    path.chmod(0o755)
    return GoToolchain(path)


NOWHERE = Release("http://127.0.0.1:9/k8s", "http://127.0.0.1:9/etcd")


def test_where_the_release_is_out_of_reach_everything_is_built_with_go(
    go: GoToolchain, cache: Path, tmp_path: Path
) -> None:
    told = io.StringIO()
    install(V, release=NOWHERE, go=go, progress=Progress(told))
    assert {path.name for path in cache.iterdir() if not path.name.startswith(".")} == set(ALL)
    assert told.getvalue().count("the official release cannot be used") == 1
    assert "kube-apiserver 1.36.4: built" in told.getvalue()
    assert "k8s.io/api => k8s.io/api v0.36.4" in (tmp_path / "path" / "kube-apiserver.go.mod").read_text()
    assert f"require go.etcd.io/etcd/server/v3 v{versions.ETCD}" in (tmp_path / "path" / "v3.go.mod").read_text()
    assert '"CGO_ENABLED": "0"' in (tmp_path / "path" / "kubectl.env").read_text()


def test_without_a_way_the_message_says_why_for_each_and_what_to_do(quiet: Progress) -> None:
    with pytest.raises(NoWayError) as caught:
        install(V, release=NOWHERE, source="release", progress=quiet)
    told = str(caught.value)
    assert "no way to get etcd" in told
    assert "127.0.0.1:9" in told
    assert "KUBEBUILDER_ASSETS" in told


def test_what_go_says_when_it_fails_is_quoted(
    go: GoToolchain, quiet: Progress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GO_FAILS", "1")
    with pytest.raises(NoWayError, match="go: no such module"):
        install(V, source="go", go=go, progress=quiet)


def test_the_command_goes_on_without_binaries_when_told_to(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    urls = ["--release-url", "http://127.0.0.1:9", "--etcd-url", "http://127.0.0.1:9"]
    assert main(["install", "--if-possible", *urls]) == 0
    assert "note: no way to get" in capsys.readouterr().err
    assert main(["install", *urls]) == 1
    assert "no `go` in PATH" in capsys.readouterr().err


def test_the_command_fills_the_cache_once(site: Site, capsys: pytest.CaptureFixture[str], cache: Path) -> None:
    urls = ["--release-url", site.release.kubernetes_url, "--etcd-url", site.release.etcd_url]
    assert main(["install", *urls]) == 0
    asked = len(site.asked)
    assert main(["install", *urls]) == 0
    assert len(site.asked) == asked
    assert f"all binaries are there ({cache})" in capsys.readouterr().out
    assert main(["where"]) == 0
    assert f"kube-scheduler {cache / 'kube-scheduler'}" in capsys.readouterr().out


def test_what_is_missing_is_installed_in_the_version_of_the_api_server_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assets = tmp_path / "assets"
    assets.mkdir()
    (assets / "kube-apiserver").write_text("#!/bin/sh\necho 'Kubernetes v1.35.1'\n")
    (assets / "kube-apiserver").chmod(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    monkeypatch.setenv("PATH", "/bin")
    urls = ["--release-url", "http://127.0.0.1:9", "--etcd-url", "http://127.0.0.1:9"]
    assert main(["install", *urls]) == 1
    assert (tmp_path / "cache" / "multimirror" / "bin" / "1.35.1").is_dir()
    assert not (tmp_path / "cache" / "multimirror" / "bin" / str(V)).exists()


def test_staging_modules_are_sent_to_the_versions_published_with_the_release() -> None:
    settings = "module k8s.io/kubernetes\n\ngo 1.25.0\n\ngodebug default=go1.25\n\n"
    upstream = f"{settings}replace k8s.io/api => ./staging/src/k8s.io/api\n"
    assert kubernetes_go_mod(upstream, versions.Version(1, 35, 4)).splitlines() == [
        "module multimirror.dev/binaries",
        "go 1.25.0",
        "godebug default=go1.25",
        "require k8s.io/kubernetes v1.35.4",
        "replace (",
        "\tk8s.io/api => k8s.io/api v0.35.4",
        ")",
    ]
    assert "v3.6" in etcd_go_mod("module m\ngo 1.24\n")


def test_the_linker_is_told_the_version_that_the_programs_report() -> None:
    flags = linker_flags("kube-apiserver", V, "2026-08-20T11:51:43Z")
    assert "-X k8s.io/component-base/version.gitVersion=v1.36.4" in flags
    assert "-X k8s.io/client-go/pkg/version.gitVersion=v1.36.4" in flags
    assert "-X k8s.io/component-base/version.gitMinor=36" in flags
    assert linker_flags("etcd", V, "") == "-s -w"
