"""Runs the metro binary on decks, for the regression tests: one place for mpiexec, decks and scratch folders."""

import json
import os
import pathlib
import subprocess

# What Open MPI needs to run as root and with more ranks than cores, unless the caller has set it (mpi_launch/metro_mpirun.sh).
ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_mpi_yield_when_idle": "1"} | os.environ

SOURCE = pathlib.Path(__file__).resolve().parents[2]


class Metro:
    """The binary under test, how to start it on several ranks, and a folder for what it reads and writes."""

    def __init__(self, binary, mpiexec, folder, weights="stored"):
        self.binary = str(pathlib.Path(binary).resolve())
        self.mpiexec = str(mpiexec)
        self.folder = pathlib.Path(folder)
        self.weights = weights  # how checkpoints are converted

    def command(self, arguments, ranks=None):
        """The command line of `metro ARGUMENTS`; on several ranks when `ranks` is given. To be run in ENVIRONMENT."""
        launch = [self.mpiexec, "-n", str(ranks), "--bind-to", "none"] if ranks else []
        return launch + [self.binary, *map(str, arguments)]

    def start(self, arguments, ranks=None, timeout=110, stdin=None):
        """Runs `metro ARGUMENTS`, standard input being the file `stdin`, if any. Returns the finished process."""
        with open(stdin or "/dev/null", "rb") as content:
            return subprocess.run(self.command(arguments, ranks), cwd=self.folder, text=True, stdin=content,
                                  capture_output=True, timeout=timeout, env=ENVIRONMENT)

    def must(self, arguments, ranks=None, stdin=None):
        """Like start(), but anything but exit code 0 fails the test with the program's output."""
        process = self.start(arguments, ranks, stdin=stdin)
        if process.returncode != 0:
            raise SystemExit(f"metro {' '.join(map(str, arguments))} on {ranks} ranks: exit code {process.returncode}\n"
                             f"{process.stdout}{process.stderr}")
        return process

    def convert_tiny(self):
        """The embedded model as a checkpoint."""
        return self.convert(SOURCE / "inputs/models/tiny")

    def convert(self, model):
        """A Hugging Face folder as a checkpoint; converted once per folder."""
        checkpoint = self.folder / f"{model.name}.h5"
        if not checkpoint.exists():
            self.must(["convert", "--weights", self.weights, model, checkpoint])
        return checkpoint

    def write_requests(self, name, lines):
        path = self.folder / name
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    def write_deck(self, requests, output, model=SOURCE / "inputs/models/tiny"):
        """A deck on a model, the embedded one by default; what a test varies comes as overrides."""
        deck = self.folder / "deck.toml"
        deck.write_text(f'model.checkpoint = "{self.convert(model)}"\nmodel.max_context = 256\n'
                        f'requests.input = "{requests}"\noutput.directory = "{self.folder / output}"\n')
        return deck

    def completions(self, output, name="completions.jsonl"):
        """Lines of completions.jsonl, sorted: their order depends on the schedule, nothing else may."""
        return sorted((self.folder / output / name).read_bytes().splitlines())

    def errors(self, output):
        return [json.loads(line) for line in (self.folder / output / "errors.jsonl").read_text().splitlines()]


def reference_models():
    """The tiny models of all families, each a folder with what transformers answers (tests/data/README.md)."""
    return sorted(path.parent for path in (SOURCE / "tests/data/families").glob("*/reference.json"))


def reference_cases():
    """The 24 prompts of the embedded model with what transformers answers (tests/data/README.md)."""
    return json.loads((SOURCE / "tests/data/tiny/reference.json").read_text())["cases"]
