"""Where tables lie that take long to compute, in memory and on disk, and who computes them."""

from daemons.tables.disk import DEFAULT_FOLDER as DEFAULT_FOLDER
from daemons.tables.disk import DiskShelf as DiskShelf
from daemons.tables.memory import MemoryShelf as MemoryShelf
from daemons.tables.serving import Server as Server
