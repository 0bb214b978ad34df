"""State directories on small file systems, each of which can be filled and freed."""
import contextlib, os, subprocess

# More than the trail of a test takes.
SIZE = "96m"


class Disk:
    """The file system of one replica's state directory."""

    def __init__(self, folder):
        self.folder, self.filler = folder, folder / "filler"

    def fill(self):
        """Leaves no byte."""
        with open(self.filler, "ab", buffering=0) as filler, contextlib.suppress(OSError):
            while filler.write(bytes(65536)):
                pass
        assert os.statvfs(self.folder).f_bavail == 0, f"{self.folder} has space left"

    def free(self):
        self.filler.unlink()

    def unmount(self):
        subprocess.run(["umount", "--lazy", self.folder], check=False)


def mount(replicas):
    """Puts the state directory of each replica on a tmpfs. Nothing where that is not allowed: it takes root, and a kernel that
    lets root mount."""
    disks = {}
    for replica in replicas:
        folder = replica.folder / "state"
        folder.mkdir(mode=0o700)
        options = f"size={SIZE},mode=0700"
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True)
        if mounted.returncode != 0:
            unmount(disks)
            return {}
        disks[replica] = Disk(folder)
    return disks


def unmount(disks):
    for disk in disks.values():
        disk.unmount()
