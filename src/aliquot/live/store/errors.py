"""Errors about named things that every floor above the store may raise.

    NotFoundError            no namespace, key, entity or dataset has this name
      WrongCollectionError   the name exists, but in another collection
    AccessDeniedError        the entity belongs to another namespace and is not published

The gateway turns them into HTTP statuses. Their public texts are those of OpenWhisk.
"""

NOT_FOUND = "The requested resource does not exist."
ACCESS_DENIED = "The supplied authentication is not authorized to access '{}'."


class NotFoundError(Exception):
    """The namespace, key, entity or dataset does not exist."""


class WrongCollectionError(NotFoundError):
    """An entity of this name exists, but in another collection."""


class AccessDeniedError(Exception):
    """The entity belongs to another namespace and is not published.

    The message is the entity's name. It does not tell whether the entity exists.
    """
