"""A real checkdam server for the tests, ended with them."""

import atexit
import functools
import os
import socket
import subprocess
import tempfile
import threading
from pathlib import Path

RULES = """
rules:
  - { name: user, key: "user:{user}", limits: ["1/m burst 3", "1000/h"] }
  - { name: address, key: "ip:{ip}", limits: ["2/m"] }
  - { name: endpoint, key: "endpoint:{endpoint}", when: { endpoint: /limited }, limits: ["2/m"] }
  - { name: watched, key: "watched:{watched}", limits: ["1/m"], mode: shadow }
  - { name: queue, key: "queue:{queue}", limits: ["5/s burst 100"], algorithm: leaky_bucket }
  - { name: polite, key: "polite:{polite}", limits: ["20/s"] }
  - { name: elsewhere, domain: elsewhere, key: "user:{user}", limits: ["7/m"] }
bans:
  - { subject: "user:evil", reason: scraping, until: "2099-01-01T00:00:00Z" }
"""

#: How long the server may take to start.
PATIENCE_S = 20


class Server:
    url = None

    def __init__(self, rules_text=RULES, arguments=()):
        binary = os.environ.get("CHECKDAM_BIN")
        if not binary or not Path(binary).is_file():
            raise SystemExit(f"CHECKDAM_BIN is {binary!r}: set it to the path of the checkdam binary")
        self._folder = tempfile.TemporaryDirectory()
        rules = Path(self._folder.name, "rules.yaml")
        rules.write_text(rules_text)
        settings = ("CHECKDAM_", "LOG_", "DATABASE_URL")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(settings)}
        environment.update(
            CHECKDAM_ADMIN_LISTEN="127.0.0.1:0", CHECKDAM_GRPC_LISTEN="off", CHECKDAM_DATA_DIR=self._folder.name
        )
        self._process = subprocess.Popen(
            [os.path.abspath(binary), "serve", "--http-listen", "127.0.0.1:0", "--rules", str(rules), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=self._folder.name,
        )
        atexit.register(self.stop)
        self._said = []
        self._listens = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._listens.wait(PATIENCE_S) or self.url is None:
            self.stop()
            raise SystemExit("the server did not start:\n" + "".join(self._said))

    def _read(self):
        for line in self._process.stderr:
            self._said.append(line)
            if "/v1/check" in line:
                listening = next(said for said in self._said if "listening" in said)
                self.url = listening.split()[-1]
                self._listens.set()
        self._listens.set()

    def stop(self):
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._process.stderr.close()
        self._folder.cleanup()


@functools.lru_cache(maxsize=None)
def server_url():
    """The address of the one server that all tests share: each uses keys of its own."""
    return Server().url


#: The API token of `guarded_url`.
TOKEN = "the-api-token-of-tests"


@functools.lru_cache(maxsize=None)
def guarded_url():
    """The address of a server that needs `TOKEN`."""
    return Server(arguments=("--api-token", TOKEN)).url


def openssl(*arguments):
    """Runs openssl; certificates of tests are made with it."""
    subprocess.run(["openssl", *arguments], check=True, stdin=subprocess.DEVNULL, capture_output=True)


class Certificates:
    """A CA, and what it has signed: `server` for 127.0.0.1, `client`, and `other` by another CA."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory()
        atexit.register(self._folder.cleanup)
        for ca, signed in (("ca", ("server", "client")), ("other-ca", ("other",))):
            openssl("req", "-x509", *self._new(ca), "-days", "2", "-subj", f"/CN=tests {ca}")
            for name in signed:
                openssl("req", *self._new(name, "csr"), "-subj", f"/CN=tests {name}")
                names = Path(self.path("names"))
                names.write_text("subjectAltName=IP:127.0.0.1")
                authority = ("-CA", self.path(f"{ca}.crt"), "-CAkey", self.path(f"{ca}.key"), "-CAcreateserial")
                request, made = ("-in", self.path(f"{name}.csr")), ("-out", self.path(f"{name}.crt"), "-days", "2")
                openssl("x509", "-req", *request, *authority, *made, "-extfile", str(names))

    def path(self, name):
        return os.path.join(self._folder.name, name)

    def _new(self, name, kind="crt"):
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", self.path(f"{name}.key"))
        return (*key, "-out", self.path(f"{name}.{kind}"))


@functools.lru_cache(maxsize=None)
def certificates():
    return Certificates()


@functools.lru_cache(maxsize=None)
def tls_url(is_mutual=False):
    """The address of a server with TLS; a mutual one requires a client certificate."""
    files = certificates()
    arguments = ["--tls-cert", files.path("server.crt"), "--tls-key", files.path("server.key")]
    if is_mutual:
        arguments += ["--http-tls-client-ca", files.path("ca.crt")]
    return Server(arguments=arguments).url


def silent_address():
    """An address where no server listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"
