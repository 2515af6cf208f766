"""A small model of what namespaces hold, as OpenWhisk's clients see it: each verb says which statuses may come."""

from dataclasses import dataclass, field

ACTIONS, PACKAGES, TRIGGERS, RULES = COLLECTIONS = ("actions", "packages", "triggers", "rules")
OK, CREATED_LATER, NO_CONTENT = {200}, {202}, {204}
FORBIDDEN, MISSING, CONFLICT, REFUSED = 403, 404, 409, 400


@dataclass
class Thing:
    """An entity. Fields that its collection does not use keep their defaults."""

    collection: str
    parameters: dict = field(default_factory=dict)
    version: int = 1
    published: bool = False
    binding: tuple | None = None  # a package's
    links: dict = field(default_factory=dict)  # a trigger's: whether each of its rules is active
    trigger: str = ""  # a rule's
    action: str = ""  # a rule's


class Model:
    def __init__(self):
        self.things = {}  # by namespace and name, which is `package/name` for an action in one
        self.activations = {}  # how many, by namespace

    def find(self, collection, namespace, name):
        thing = self.things.get((namespace, name))
        return thing if thing and thing.collection == collection else None

    def missing(self, collection, namespace, name):
        """The status for what is not there: names are shared by all collections."""
        return CONFLICT if (namespace, name) in self.things and not self.find(collection, namespace, name) else MISSING

    def names(self, collection, namespace):
        things = self.things.items()
        return sorted(name for (own, name), thing in things if (own, thing.collection) == (namespace, collection))

    # --- writing

    def put(self, collection, namespace, name, *, overwrite, problems=(), **fields):
        """Return the possible statuses. The model changes only on success. A field that is None keeps its value."""
        old = self.things.get((namespace, name))
        wrong = set(problems)
        if old and (not overwrite or old.collection != collection):
            wrong.add(CONFLICT)
        if wrong:
            return wrong
        thing = self.things.setdefault((namespace, name), Thing(collection, version=0))
        thing.version += 1
        for key, value in fields.items():
            if value is not None:
                setattr(thing, key, value)
        return OK

    def put_package(self, namespace, name, *, overwrite, binding=None, **fields):
        problems = set()
        old = self.find(PACKAGES, namespace, name)
        if binding:
            target = self.find(PACKAGES, *binding)
            if binding[0] != namespace and not (target and target.published):
                problems.add(FORBIDDEN)
            elif target is None:
                problems.add(CONFLICT if binding in self.things else REFUSED)
            elif target.binding:
                problems.add(REFUSED)
            if old and not old.binding:
                problems.add(CONFLICT)
            if binding == (namespace, name):
                problems |= {REFUSED, CONFLICT}
        return self.put(PACKAGES, namespace, name, overwrite=overwrite, problems=problems, binding=binding, **fields)

    def put_action(self, namespace, name, **fields):
        return self.put(ACTIONS, namespace, name, problems=self.package_problems(namespace, name), **fields)

    def package_problems(self, namespace, name):
        """Why nothing can be written there."""
        package = name.rpartition("/")[0]
        if not package:
            return set()
        found = self.find(PACKAGES, namespace, package)
        if found is None:
            return {self.missing(PACKAGES, namespace, package)}
        return {REFUSED} if found.binding else set()

    def put_rule(self, namespace, name, *, trigger, action, **fields):
        problems = set()
        if not self.find(TRIGGERS, namespace, trigger):
            problems.add(REFUSED)
        if not self.reach(namespace, namespace, action):
            problems.add(REFUSED)
        active = self.is_active(namespace, name) if self.find(RULES, namespace, name) else True
        before = self.find(RULES, namespace, name)
        before = before.trigger if before else None
        statuses = self.put(RULES, namespace, name, problems=problems, trigger=trigger, action=action, **fields)
        if statuses == OK:
            self.unlink(namespace, before, name)
            self.find(TRIGGERS, namespace, trigger).links[name] = active
        return statuses

    def unlink(self, namespace, trigger, rule):
        if found := self.find(TRIGGERS, namespace, trigger):
            found.links.pop(rule, None)

    # --- deleting

    def delete(self, collection, namespace, name, *, force=False):
        thing = self.find(collection, namespace, name)
        if collection == ACTIONS and (problems := self.package_problems(namespace, name)):
            return problems
        if thing is None:
            return {self.missing(collection, namespace, name)}
        if collection == PACKAGES and (inside := self.inside(namespace, name)):
            if not force:
                return {CONFLICT}
            for action in inside:
                del self.things[namespace, action]
        if collection == RULES:
            self.unlink(namespace, thing.trigger, name)
        del self.things[namespace, name]
        return OK

    def inside(self, namespace, package):
        return [name for name in self.names(ACTIONS, namespace) if name.startswith(f"{package}/")]

    # --- reading, calling and firing

    def is_active(self, namespace, rule):
        trigger = self.find(TRIGGERS, namespace, self.find(RULES, namespace, rule).trigger)
        return bool(trigger and trigger.links.get(rule))

    def set_status(self, namespace, rule, *, active):
        found = self.find(RULES, namespace, rule)
        if found is None:
            return {self.missing(RULES, namespace, rule)}
        trigger = self.find(TRIGGERS, namespace, found.trigger)
        if trigger is None:
            return {MISSING} if active else OK
        trigger.links[rule] = active
        return OK

    def packages(self, caller, namespace, name):
        """Return the package and the package it is bound to, or the statuses of a refusal."""
        found = self.find(PACKAGES, namespace, name)
        if namespace != caller and not (found and found.published):
            return {FORBIDDEN}
        if found is None:
            return {self.missing(PACKAGES, namespace, name)}
        if not found.binding:
            return [(namespace, name)]
        beneath = self.find(PACKAGES, *found.binding)
        if beneath is None or beneath.binding or (found.binding[0] != caller and not beneath.published):
            return {FORBIDDEN, MISSING, CONFLICT}  # it was there when it was bound
        return [found.binding, (namespace, name)]

    def reach(self, caller, namespace, name):
        """Return the parameters with which an action is called, or None. `why_not` has the reason."""
        package, _, leaf = name.rpartition("/")
        if not package:
            found = self.find(ACTIONS, namespace, name) if namespace == caller else None
            return None if found is None else {"parameters": found.parameters}
        packages = self.packages(caller, namespace, package)
        if isinstance(packages, set):
            return None
        owner, real = packages[0]
        action = self.find(ACTIONS, owner, f"{real}/{leaf}")
        if action is None:
            return None
        merged = {}
        for place in packages:
            merged |= self.things[place].parameters
        return {"parameters": merged | action.parameters}

    def why_not(self, caller, namespace, name):
        package = name.rpartition("/")[0]
        if not package:
            return {FORBIDDEN} if namespace != caller else {self.missing(ACTIONS, namespace, name)}
        packages = self.packages(caller, namespace, package)
        return packages if isinstance(packages, set) else {MISSING}

    def fire(self, namespace, name):
        """The statuses that may come, and the active rules with whether their actions can be called."""
        trigger = self.find(TRIGGERS, namespace, name)
        if trigger is None:
            return {self.missing(TRIGGERS, namespace, name)}, {}
        active = {
            rule: self.reach(namespace, namespace, self.find(RULES, namespace, rule).action) is not None
            for rule, is_active in trigger.links.items()
            if is_active
        }
        return (CREATED_LATER if active else NO_CONTENT), active
