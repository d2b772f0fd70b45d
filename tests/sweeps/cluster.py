"""A SLURM of one node on loopback, all of it in one directory, for the tests."""

import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel", "sinfo")
CONF = """
ClusterName=loop
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthType=auth/munge
# A requeued job may start again when its old credential has expired: 5 s, the least.
AuthInfo=socket={root}/munge.sock,cred_expire=5
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd.log
MailProg=/bin/true
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc={root}/jobs.txt
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
ReturnToService=2
JobRequeue=1
KillWait=20
MinJobAge=600
MaxArraySize={max_array}
NodeName=localhost NodeAddr=127.0.0.1 CPUs={cores} RealMemory=2000 State=UNKNOWN
PartitionName=main Nodes=localhost Default=YES MaxTime=INFINITE DefaultTime=60 State=UP
"""


class Cluster:
    """Started when made; `environment` is what its commands need."""

    def __init__(self, root: Path, max_array: int = 1001) -> None:
        self.root = root
        self.environment = {**os.environ, "SLURM_CONF": str(root / "slurm.conf")}
        for name in ("state", "spool", "munge"):
            (root / name).mkdir(parents=True)
        (root / "munge").chmod(0o700)
        key = root / "munge" / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        ports = _free_ports(2)
        (root / "slurm.conf").write_text(
            CONF.format(
                root=root,
                user=pwd.getpwuid(os.getuid()).pw_name,
                controller_port=ports[0],
                node_port=ports[1],
                cores=os.cpu_count(),
                max_array=max_array,
            )
        )
        subprocess.run(
            [
                "munged",
                f"--key-file={key}",
                f"--socket={root}/munge.sock",
                f"--pid-file={root}/munged.pid",
                f"--log-file={root}/munged.log",
                f"--seed-file={root}/munge/seed",
            ],
            check=True,
        )
        for daemon in ("slurmctld", "slurmd"):
            subprocess.run([daemon], env=self.environment, check=True)
        self._await_node()

    def _await_node(self) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self.call("sinfo", "--noheader", "--format=%T").strip() in ("idle", "mixed"):
                return
            time.sleep(0.2)
        logs = "".join(p.read_text()[-2000:] for p in self.root.glob("*.log"))
        raise RuntimeError(f"SLURM did not come up: {logs}")

    def call(self, *command: str) -> str:
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False, timeout=60
        )
        return done.stdout

    def sweep(self, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        return self.script("sweep.py", *arguments, cwd=cwd)

    def script(self, name: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        script = Path(__file__).parents[2] / "scripts" / name
        return subprocess.run(
            [sys.executable, str(script), *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            cwd=cwd,
        )

    def states(self) -> dict[str, str]:
        """Jobs of arrays, as 12_3, and their states."""
        lines = self.call("squeue", "--noheader", "--array", "--states=all", "--format=%i %T")
        return dict(line.split() for line in lines.splitlines())

    def wait(self, seconds: float = 300) -> dict[str, str]:
        """Until nothing is queued or runs."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not self.call("squeue", "--noheader").strip():
                return self.states()
            time.sleep(0.3)
        raise TimeoutError(f"after {seconds} s: {self.states()}")

    def stop(self) -> None:
        self.call("scancel", "--user", pwd.getpwuid(os.getuid()).pw_name)
        for daemon in ("slurmd", "slurmctld", "munged"):
            pid = self.root / f"{daemon}.pid"
            if pid.exists():
                subprocess.run(["kill", pid.read_text().strip()], check=False)


def missing_programs() -> list[str]:
    return [name for name in NEEDED if shutil.which(name) is None]


def _free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports
