"""Flags that say who does the work: this machine's own processes, or workers that Ray starts, here or on a cluster."""

from absl import flags

ENGINE = flags.DEFINE_enum('engine', 'local', ('local', 'ray'), 'Who does the work.')
WORKERS = flags.DEFINE_integer('workers', 2, 'With --engine=ray: how many work at a time.', lower_bound=1)
ADDRESS = flags.DEFINE_string('address', '', "With --engine=ray: of a cluster, or auto; '': one on this machine.")
