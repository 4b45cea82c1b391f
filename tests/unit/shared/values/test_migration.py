"""What live migrations need: comparisons by kind, amounts of hugepages, and a sentence for everything."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.values import migration as m
from shared.values.nodes import HugepagePool, Node
from tests.extent import examples

GIGANTIC = 1_048_576


def test_kinds_are_compared_by_value_or_by_their_own_rule() -> None:
    has = ("bridge=br0", "cpus=0-7", "cpus=16-23", "numa=0-1", "shared=/mnt/images", "hugepages-2048=512", "pool=a")
    for need, there in (
        ("bridge=br0", True),
        ("bridge=br1", False),
        ("cpus=0-3,20", True),
        ("cpus=8", False),
        ("cpus=nonsense", False),
        ("numa=1", True),
        ("numa=0-2", False),
        ("shared=/mnt/images/web", True),
        ("shared=/mnt/images", True),
        ("shared=/mnt/images2", False),
        ("shared=/mnt/images/../../etc", False),
        ("hugepages-2048=512", True),
        ("hugepages-2048=513", False),
        (f"hugepages-{GIGANTIC}=1", False),
        ("network=default", True),  # of networks nothing is known
        ("disk=rbd:vms", False),  # network disks are verified, or lacking
        ("cpu-forbid=kvm:svm", True),  # nothing is known of its CPU
        ("media=/a.iso", False),
    ):
        assert (m.lacks(has, (need,)) == ()) is there, need


def test_a_kind_listed_without_a_value_is_one_of_which_there_is_nothing() -> None:
    assert m.lacks(("bridge=", "pool=a"), ("bridge=br0",)) == ("bridge=br0",)
    assert m.lacks(("hugepages=",), ("hugepages-2048=1",)) == ("hugepages-2048=1",)
    assert m.of_kind(("cpu=", "cpu=EPYC"), "cpu") == "EPYC"
    assert m.of_kind(("cpu-model=x",), "cpu") == ""


def test_no_node_has_what_binds_a_vm_to_its_own() -> None:
    need = m.bound("pci-device", "0000:3b:00.0")
    assert m.lacks((), (need, "pool=a")) == (need,), "also one of which nothing is known"
    assert m.lacks((need,), (need,)) == (need,)
    assert m.ties((need, "pool=a")) == (need,)
    with pytest.raises(KeyError):
        m.bound("no-such-thing")


def test_everything_has_a_sentence() -> None:
    for kind in m.KINDS.keys() - {"bound", m.PAGES}:
        said = m.sentence(f"{kind}=kvm:x1", "n2")
        assert "{" not in said, kind
        assert ("x1" in said) is (kind not in ("snapshots", "tls")), kind
        assert not said.endswith("."), kind
    for what in m.BOUND:
        bare, detailed = m.sentence(f"bound={what}"), m.sentence(f"bound={what}:d1")
        assert "{" not in bare + detailed
        assert detailed in (bare, f"{bare} d1", f"{bare}: d1", bare.replace("device", "device d1"))
        assert len(bare.split()) <= 12
    assert m.BOUND.keys() >= m.TEMPORARY
    assert m.sentence("later=x", "n2") == "needs x, which n2 lacks"
    assert m.sentence("bound=later:x") == "is bound to its node by later: x"
    assert m.sentence("bound=later") == "is bound to its node by later"


@pytest.mark.parametrize("text", ["{0}", "{value.x}", "{", "}}{"])
def test_text_of_others_is_no_format(text: str) -> None:
    """Given braces in what an agent has sent, wherever they are, then they are shown as they are."""
    for need in (f"bound={text}:{text}", f"bound=pci-device:{text}", f"later={text}", f"bridge={text}", f"{text}=x"):
        assert text in m.sentence(need) or need == f"{text}=x"


@pytest.mark.parametrize(
    ("listed", "there"),
    [
        ("rbd:vms@mon1,mon2", True),
        ("rbd:vms", True),  # as an operator says, or an older agent
        ("rbd:vms@mon1", False),
        ("rbd:vms@mon3,mon4", False),
        ("rbd:other", False),
    ],
)
def test_a_network_disk_is_that_of_the_same_servers(listed: str, there: bool) -> None:
    assert (m.lacks(("disk=", f"disk={listed}"), ("disk=rbd:vms@mon1,mon2",)) == ()) is there


@pytest.mark.parametrize(
    ("value", "without"),
    [
        ("rbd:vms@mon1,mon2", "rbd:vms"),
        ("rbd:vms", "rbd:vms"),
        ("iscsi:iqn.2013-07.com.example:1", "iscsi:iqn.2013-07.com.example:1"),
        ("iscsi:iqn.2013-07.com.example:1@s1:3261", "iscsi:iqn.2013-07.com.example:1"),
        ("nbd:store1:10809", "nbd:store1"),
        ("nbd:[fd00::1]:10809", "nbd:fd00::1"),
        ("nbd:fd00::1", "nbd:fd00::1"),
        ("nbd:/run/nbd.sock", "nbd:/run/nbd.sock"),
        ("later:", "later:"),
    ],
)
def test_a_network_disk_without_its_servers(value: str, without: str) -> None:
    assert m.anywhere(value) == without


def test_a_cpu_must_not_have_what_is_forbidden() -> None:
    has = ("cpu-flag=", "cpu-flag=kvm:svm", "cpu-vendor=", "cpu-vendor=kvm:AMD")
    needs = ("cpu-forbid=kvm:svm", "cpu-forbid=kvm:vmx", "cpu-vendor=kvm:AMD", "cpu-vendor=kvm:Intel")
    assert m.lacks(has, needs) == ("cpu-forbid=kvm:svm", "cpu-vendor=kvm:Intel")
    assert m.sentence(needs[0], "n2") == "must not run on a CPU with feature svm, which n2 has"
    assert m.sentence(needs[3], "n2") == "needs a CPU of Intel, which that of n2 is not"


def test_hugepages_are_told_with_what_is_free() -> None:
    said = m.sentence("hugepages-2048=4096", "n2", ("hugepages-2048=1024",))
    assert said == "needs 4,096 MiB of 2 MiB hugepages; n2 has 1,024 MiB free"
    assert "of 1 GiB hugepages; n2 has 0 MiB free" in m.sentence(f"hugepages-{GIGANTIC}=1024", "n2")
    assert "of 64 KiB hugepages" in m.sentence("hugepages-64=2", "n2")


def test_hugepages_are_no_ordinary_memory() -> None:
    needs = ("hugepages-2048=512", f"hugepages-{GIGANTIC}=1024", "numa=0-1", "pool=a")
    use = m.pages_of(needs)
    assert (use.total_mib, use.of_size(2_048), use.of_size(4), use.cells) == (1_536, 512, 0, frozenset({0, 1}))
    assert m.ordinary_mib(2_000, needs) == 464
    assert m.ordinary_mib(1_000, needs) == 0
    assert m.ordinary_mib(1_000, ("pool=a",)) == 1_000
    assert m.pages_of(("numa=0",)) == m.NO_PAGES
    assert m.memory_needs(needs) == ("hugepages-2048=512", f"hugepages-{GIGANTIC}=1024", "numa=0-1")
    assert m.memory_needs(("numa=0", "bridge=br0")) == ("numa=0",)
    assert m.memory_needs(("bridge=br0",)) == ()
    pools = (HugepagePool(2_048, 300, 0), HugepagePool(2_048, 200, 1))
    assert Node("n", 1, 1.0, memory_mib=1_000, reserve_mib=100, hugepages=pools).usable_mib == 400
    assert Node("n", 1, 1.0, memory_mib=400, hugepages=pools).usable_mib == 0


def test_memory_in_numa_cells_is_told_with_what_is_free() -> None:
    """An agent reports the cells; how much memory must be in them is the VM's, without its hugepages."""
    assert m.with_cell_memory(("numa=0",), 512) == ("numa=0", "numa-memory=512")
    assert m.with_cell_memory(("numa=0", "numa-memory=1"), 512) == ("numa=0", "numa-memory=1")
    assert m.with_cell_memory(("bridge=a",), 512) == ("bridge=a",)
    assert m.with_cell_memory(("hugepages-2048=512", "numa=0"), 512) == ("hugepages-2048=512", "numa=0")
    use = m.pages_of(("hugepages-2048=100", "numa=0-1", "numa-memory=412"))
    assert (use.total_mib, use.bound_mib, use.amounts) == (100, 412, ((2_048, 100), (m.ORDINARY_KIB, 412)))
    both = frozenset({0, 1})
    assert [*use.draws()] == [(2_048, frozenset(), 100), (2_048, both, 100), (m.ORDINARY_KIB, both, 412)]
    assert [use.share_of(size, frozenset({1})) for size in (2_048, m.ORDINARY_KIB)] == [100, 412]
    assert [use.share_of(size, frozenset({7})) for size in (2_048, m.ORDINARY_KIB)] == [0, 0]
    said = m.sentence("numa-memory=4096", "n2", ("numa-memory=1024",))
    assert said == "needs 4,096 MiB in its NUMA cells; n2 has 1,024 MiB free there"
    assert m.lacks(("numa-memory=1024",), ("numa-memory=1025",)) == ("numa-memory=1025",)
    assert m.lacks(("numa-memory=1024",), ("numa-memory=1024",)) == ()
    assert m.lacks(("numa=0",), ("numa-memory=1024",)) == (), "of a node that does not tell nothing is known"


@pytest.mark.parametrize("text", ["", "-", "a", "1-", "0-99999", "65536", "1,,2", "^", "0-", "1x"])
def test_what_is_no_list_of_numbers_has_none(text: str) -> None:
    assert m.numbers(text) == frozenset()


def test_lists_of_numbers_may_leave_some_out() -> None:
    assert m.numbers("0-7,^3,^5-6, 12") == {0, 1, 2, 4, 7, 12}


@settings(max_examples=examples(200))
@given(st.frozensets(st.integers(0, 2_000), max_size=300))
def test_numbers_are_read_as_they_are_written(found: frozenset[int]) -> None:
    assert m.numbers(m.ranges(found)) == found
    texts = m.number_texts("cpus", found)
    assert all(len(text) <= 255 for text in texts)
    assert frozenset().union(*(m.numbers(text.removeprefix("cpus=")) for text in texts)) == found
    if found:
        assert m.lacks(tuple(texts), tuple(texts)) == ()


@settings(max_examples=examples(300))
@given(st.text(max_size=600))
def test_every_value_has_a_text_that_may_be_sent(value: str) -> None:
    text = m.feature("storage", value)
    node = Node("n", 1, 1.0, memory_mib=1, migration_has=(text,))
    assert m.lacks(node.migration_has, (m.feature("storage", value),)) == () or not value
    assert m.sentence(text)


def test_long_values_that_differ_at_their_ends_differ() -> None:
    assert m.feature("storage", "/" + "a" * 400 + "1") != m.feature("storage", "/" + "a" * 400 + "2")


TOKENS = [
    "bridge=a", "bridge=b", "pool=a", "pool=b", "cpus=0-3", "cpus=2-5", "numa=0", "numa=0-1",
    "shared=/a", "shared=/a/b", "hugepages-2048=100", "hugepages-2048=200", "hugepages-4=100",
    "disk=rbd:a", "bound=job",
]  # fmt: skip


def naive(has: set[str], need: str) -> bool:
    """Whether a node lacks it, by cases."""
    kind, value = need.split("=", 1)
    family = kind.split("-")[0] if kind.startswith("hugepages") else kind
    listed = [one.split("=", 1) for one in has if one.split("=")[0].split("-")[0] == family]
    if kind == "bound":
        return True
    if not listed:
        return kind == "disk" and bool(has)
    if family == "hugepages":
        return not any(int(mib) >= int(value) for size, mib in listed if size == kind)
    if kind in ("cpus", "numa"):
        spans = [value for _, value in listed]
        there = {n for span in spans for n in range(int(span.split("-")[0]), int(span.split("-")[-1]) + 1)}
        return not set(range(int(value.split("-")[0]), int(value.split("-")[-1]) + 1)) <= there
    if kind == "shared":
        return not any(f"{value}/".startswith(f"{folder}/") for _, folder in listed)
    return need not in has


@settings(max_examples=examples(400))
@given(st.sets(st.sampled_from(TOKENS[:-1])), st.sets(st.sampled_from(TOKENS)))
def test_lacking_is_what_a_naive_comparison_says(has: set[str], needs: set[str]) -> None:
    expected = tuple(sorted(need for need in needs if naive(has, need)))
    assert m.lacks(tuple(sorted(has)), tuple(needs)) == expected
