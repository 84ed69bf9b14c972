"""What the container says of its memory, in the kernel's own words."""

import pytest

from plimsoll_broker.node.memory_limit import memory_limit


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"/sys/fs/cgroup/memory.max": "1073741824\n"}, 1073741824),
        ({"/sys/fs/cgroup/memory.max": "max\n"}, None),
        (
            {
                "/proc/self/cgroup": "0::/kubepods/pod1/broker\n",
                "/sys/fs/cgroup/kubepods/pod1/broker/memory.max": "max\n",
                "/sys/fs/cgroup/kubepods/pod1/memory.max": "536870912\n",
                "/sys/fs/cgroup/kubepods/memory.max": "8589934592\n",
            },
            536870912,
        ),
        (
            {
                "/proc/self/cgroup": "9:cpu,cpuacct:/pod1\n4:memory:/pod1\n",
                "/sys/fs/cgroup/memory/pod1/memory.limit_in_bytes": "268435456\n",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            268435456,
        ),
        ({"/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, None),
        ({"/sys/fs/cgroup/memory.max": "nonsense"}, None),
        ({"/sys/fs/cgroup/memory.max": "0"}, None),
    ],
)
def test_smallest_limit_around_the_process_counts(files, expected):
    assert memory_limit(files.get) == expected
