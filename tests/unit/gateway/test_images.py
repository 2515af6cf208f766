"""Images of other platforms: their mapping to runtimes, and refusals."""

import pytest
from gateway_client import ACTIONS, gateway, on_a_loop

from aliquot.core.errors import InputError
from aliquot.live.catalogue.groups import FlowFunctions
from aliquot.live.catalogue.images import RuntimeImage, find_image, parse_image
from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.gateway.entities.kinds import check_image
from aliquot.live.invocations.launches import launch
from aliquot.live.store.records import Action, Exec, Pair

HUB = RuntimeImage("docker.io/acme/model", "python:3.11", ("numpy",))


@pytest.mark.parametrize(
    ("text", "image"),
    [
        ("acme/model=python:3.11", RuntimeImage("acme/model", "python:3.11")),
        ("h:5000/m:1=python:3,lithops==3.8.0", RuntimeImage("h:5000/m:1", "python:3", ("lithops==3.8.0",))),
        ("m=python:3, a>=1,<2 ,b[x,y]==1,c", RuntimeImage("m", "python:3", ("a>=1,<2", "b[x,y]==1", "c"))),
    ],
)
def test_an_image_is_mapped_by_one_text(text, image):
    assert parse_image(text) == image


@pytest.mark.parametrize("text", ["", "acme", "=python:3", "acme=", "acme=python:3,", "a b=python:3", "m=python:3,-rx"])
def test_the_refusal_of_a_wrong_mapping_says_what_is_accepted(text):
    with pytest.raises(InputError, match="--image: "):
        parse_image(text)


@pytest.mark.parametrize(
    ("mapped", "asked", "fits"),
    [
        ("docker.io/acme/model", "docker.io/acme/model", True),
        ("docker.io/acme/model", "acme/model", True),
        ("acme/model", "docker.io/acme/model:latest", True),
        ("acme/model:1", "acme/model", True),
        ("acme/model:1", "acme/model:2", False),
        ("docker.io/acme/model", "ghcr.io/acme/model", False),
        ("acme/model", "acme/model2", False),
        ("acme/model", "model", False),
        ("localhost:5000/model", "model", True),
        ("python", "docker.io/library/python@sha256:abc", True),
    ],
)
def test_host_and_tag_are_compared_if_both_are_given(mapped, asked, fits):
    assert (find_image((RuntimeImage(mapped, "python:3.11"),), asked) is not None) is fits


def test_the_closest_image_wins():
    images = tuple(RuntimeImage(name, name) for name in ("acme/model", "acme/model:1", "docker.io/acme/model:1"))
    for asked, found in (("acme/model:1", 1), ("acme/model:2", 0), ("docker.io/acme/model:1", 2), ("acme/model", 0)):
        assert find_image(images, asked) is images[found]


def test_an_image_is_mapped_to_a_kind_that_runs_here():
    assert check_image(RuntimeImage("m", "python:3"), nodejs=False).kind == "python:3.11"
    with pytest.raises(InputError, match="'java:8' does not run here; it takes python"):
        check_image(RuntimeImage("m", "java:8"), nodejs=False)
    with pytest.raises(InputError, match="requirements are for python"):
        check_image(RuntimeImage("m", "nodejs:20", ("x",)), nodejs=True)


def test_a_blackbox_runs_as_its_images_kind_with_its_requirements():
    code = Exec("blackbox", "x", image="acme/model:7")
    action = Action("ns", "a", "0.0.1", code, annotations=(Pair("requirements", ["pillow"]),))
    made = launch(FlowFunctions.single(resolved := ResolvedAction.own(action)), resolved, ("cpu",), "", (HUB,))
    assert (made.kind, made.requirements, made.code) == ("python:3.11", ("numpy", "pillow"), "x")


@on_a_loop
async def test_a_blackbox_is_stored_and_shown_with_its_image():
    async with gateway(images=(HUB,)) as g:
        exec_ = {"kind": "blackbox", "image": "acme/model:7", "code": "UEsDBA==", "binary": False}
        status, action = await g.say("PUT", f"{ACTIONS}/b", json={"exec": exec_})
        assert status == 200
        assert action["exec"] == {"kind": "blackbox", "image": "acme/model:7", "code": "UEsDBA==", "binary": True}
        assert {"key": "exec", "value": "blackbox"} in action["annotations"]
        _, bare = await g.say("PUT", f"{ACTIONS}/bare", json={"exec": {"kind": "blackbox", "image": "acme/model"}})
        assert bare["exec"] == {"kind": "blackbox", "image": "acme/model", "binary": False}
        assert ("guest", "bare") in g.platform.deployed


@on_a_loop
async def test_an_unmapped_image_is_refused_with_the_mapped_ones():
    def text(mapped):
        return (
            f"The image 'x/y' is not mapped to a runtime of this platform. Mapped are: {mapped}. "
            "Its operator maps one with: aliquot up --image 'x/y=python:3.11'"
        )

    body = {"exec": {"kind": "blackbox", "image": "x/y"}}
    async with gateway(images=(HUB,)) as g:
        assert await g.say("PUT", f"{ACTIONS}/b", json=body) == (400, text("'docker.io/acme/model'"))
        malformed = (
            "The request content was malformed:\n'image' must be a string defined in 'exec' for 'blackbox' actions"
        )
        assert await g.say("PUT", f"{ACTIONS}/b", json={"exec": {"kind": "blackbox"}}) == (400, malformed)
    async with gateway() as g:
        assert await g.say("PUT", f"{ACTIONS}/b", json=body) == (400, text("none"))
