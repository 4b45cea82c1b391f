"""VM images of agreements: cloned from the library, with their digest, and from nowhere else."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from agents.setups.folders import WrongDigest
from agents.setups.images import Images
from shared.base.deadline import Deadline
from shared.base.errors import PermanentError
from shared.values.host_setup import Image

CONTENT = b"boot" * 1000 + bytes(3 << 20) + b"end"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def images(tmp_path: Path) -> Images:
    (tmp_path / "library/debian").mkdir(parents=True)
    (tmp_path / "library/debian/12.raw").write_bytes(CONTENT)
    (tmp_path / "secret.raw").write_bytes(CONTENT)
    return Images(str(tmp_path / "library"), str(tmp_path / "images"))


def test_an_image_is_cloned_once(images: Images, tmp_path: Path) -> None:
    image = Image("debian/12.raw", DIGEST)

    assert images.objections([image]) == []
    assert images.clone("night", [image], Deadline(10.0)) == ["debian/12.raw"]
    assert images.clone("night", [image], Deadline(10.0)) == []

    there = tmp_path / "images/night/debian/12.raw"
    assert there.read_bytes() == CONTENT
    assert there.stat().st_mode & 0o777 == 0o644


def test_an_image_that_was_written_to_is_cloned_anew(images: Images, tmp_path: Path) -> None:
    image = Image("debian/12.raw", DIGEST)
    images.clone("night", [image], Deadline(10.0))
    with (tmp_path / "images/night/debian/12.raw").open("r+b") as disk:
        disk.write(b"grub")

    assert images.clone("night", [image], Deadline(10.0)) == ["debian/12.raw"]
    assert (tmp_path / "images/night/debian/12.raw").read_bytes() == CONTENT
    assert (tmp_path / "library/debian/12.raw").read_bytes() == CONTENT


def test_a_wrong_digest_leaves_nothing(images: Images, tmp_path: Path) -> None:
    with pytest.raises(WrongDigest, match=DIGEST):
        images.clone("night", [Image("debian/12.raw", "0" * 64)], Deadline(10.0))

    assert [path for path in (tmp_path / "images").rglob("*") if path.is_file()] == []


def test_a_link_that_leaves_the_library_is_refused(images: Images, tmp_path: Path) -> None:
    (tmp_path / "library/out.raw").symlink_to("../secret.raw")
    (tmp_path / "library/far").symlink_to(tmp_path)
    (tmp_path / "library/latest.raw").symlink_to("debian/12.raw")
    out, far, near = (Image(name, DIGEST) for name in ("out.raw", "far/secret.raw", "latest.raw"))

    assert images.objections([out, far, near]) == [
        "image out.raw leads out of the library",
        "image far/secret.raw leads out of the library",
    ]
    with pytest.raises(PermanentError, match="leads out of the library"):
        images.clone("night", [out], Deadline(10.0))
    assert images.clone("night", [near], Deadline(10.0)) == ["latest.raw"]
    assert not (tmp_path / "images/night/latest.raw").is_symlink()


def test_what_is_not_in_the_library_is_refused(images: Images) -> None:
    assert images.objections([Image("debian", DIGEST), Image("none", DIGEST)]) == [
        "image debian is not in the library",
        "image none is not in the library",
    ]
    assert Images("", "/nowhere").objections([Image("a", DIGEST)]) == [
        "no library of images is configured (setup.library)"
    ]
    assert Images("", "/nowhere").objections([]) == []


def test_images_are_removed_with_their_environment(images: Images, tmp_path: Path) -> None:
    for name in ("night", "day"):
        images.clone(name, [Image("debian/12.raw", DIGEST)], Deadline(10.0))

    assert images.remove("night")
    assert not images.remove("night")
    assert (tmp_path / "images/day/debian/12.raw").exists()
    assert (tmp_path / "library/debian/12.raw").exists()
