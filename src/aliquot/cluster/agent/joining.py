"""Join a cluster: recognise the head by the token, and get a certificate from it."""

import ssl
from pathlib import Path

from aliquot.cluster import messages
from aliquot.cluster.agent.dialling import answer, dial
from aliquot.cluster.agent.settings import (
    EPOCH,
    HeadAddress,
    Membership,
    key_files,
    load_membership,
    make_identity,
    store_membership,
)
from aliquot.cluster.certificates import agent_context, digest_of, make_request, unverified_context
from aliquot.cluster.messages import Join, Joined, Refused
from aliquot.cluster.tokens import JoinToken, node_secret, proof_of
from aliquot.core.errors import InputError
from aliquot.live.store.data_directory import write_private


async def join(data: Path, name: str, head: HeadAddress, token: JoinToken) -> Membership:
    """Join a cluster, and store what the head gives. Raises `InputError` if it refuses or cannot be reached."""
    try:
        return await _join(data, name, head, token)
    except (OSError, TimeoutError) as error:  # errors of TLS are `OSError`, too
        why = "it did not answer in time" if isinstance(error, TimeoutError) else str(error)
        raise InputError(f"the head at {head} cannot be reached: {why}") from error


async def _join(data: Path, name: str, head: HeadAddress, token: JoinToken) -> Membership:
    files = key_files(data)
    files.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    known = load_membership(data)
    identity = known.identity if known is not None and known.node == name else make_identity()
    context: ssl.SSLContext | None = None
    key, request = b"", b""
    if head.tls:
        await _store_authority(files.authority, head, token)
        files.certificate.unlink(missing_ok=True)
        context = agent_context(files)
        key, request = make_request(name)
    connection, challenge = await dial(head, context)
    if head.tls is not bool(challenge.authority):
        connection.abort("it speaks another transport")
        raise InputError(_other_transport(tls=head.tls))
    proof = proof_of(token.secret, challenge.nonce, "join", name, identity)
    connection.send(messages.encode(Join(name, identity, proof, request)))
    found = await answer(connection)
    connection.close()
    if isinstance(found, Refused):
        raise InputError(f"the head refuses this machine: {found.reason}")
    if not isinstance(found, Joined):
        raise InputError(f"the head at {head} has answered with a {type(found).__name__} message")
    if head.tls:
        write_private(files.key, key.decode())
        write_private(files.certificate, found.certificate.decode())
    (files.folder / EPOCH).unlink(missing_ok=True)  # of another cluster, or of this one before it was restored
    membership = Membership(name, identity, head, b"" if head.tls else node_secret(token.secret, name, identity))
    store_membership(data, membership)
    return membership


async def _store_authority(file: Path, head: HeadAddress, token: JoinToken) -> None:
    """Store the head's authority if it is that of the token. Nothing secret is sent before. Raises `InputError`."""
    if not token.authority:
        raise InputError("--token: it is for a cluster without TLS; say --node-transport tcp")
    try:
        connection, challenge = await dial(head, unverified_context())
    except ssl.SSLError as error:
        raise InputError(
            f"the head at {head} does not speak TLS 1.3 ({error.reason}); {_other_transport(tls=True)}"
        ) from error
    connection.close()
    try:
        right = digest_of(challenge.authority) == token.authority
    except ValueError:
        right = False
    if not right:
        raise InputError(
            f"what answers at {head} is not the head that the token is of; check the address, and that nobody is "
            "between this machine and the head"
        )
    write_private(file, challenge.authority.decode())


def _other_transport(*, tls: bool) -> str:
    if tls:
        return "--node-transport: the head may speak tcp; then say so here, too"
    return "--node-transport: the head speaks tls; leave the option out"
