"""The run directory, and what a run says about itself while and after it runs."""

from canaryjax.runlog.directory import CONFIG_FILE, OPENING_FILE, RUN_FILE, RunDirectory
from canaryjax.runlog.files import disk_is_full, jsonable, read_json, read_jsonl, replacing
from canaryjax.runlog.progress import Progress, Silence
from canaryjax.runlog.provenance import THREADS, cores, provenance, threads
from canaryjax.runlog.seal import file_digests

__all__ = [
    "CONFIG_FILE",
    "OPENING_FILE",
    "RUN_FILE",
    "THREADS",
    "Progress",
    "RunDirectory",
    "Silence",
    "cores",
    "disk_is_full",
    "file_digests",
    "jsonable",
    "provenance",
    "read_json",
    "read_jsonl",
    "replacing",
    "threads",
]
