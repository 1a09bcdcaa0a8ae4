"""The words of mini-sts: things with their names, and what can be said of whom.

Every entry is one meaning; what stands in it are names for it that mean the same. Verbs come as
present and past participle. All words are common English.
"""

from typing import NamedTuple


class Noun(NamedTuple):
    """One name of an agent or an object."""

    singular: str
    plural: str


class Verb(NamedTuple):
    """One name of an action."""

    present: str  # "is … the ball"
    past: str  # "the ball is being …"


class Action(NamedTuple):
    """The names of an action, and which kinds of nouns stand on either side of it."""

    verbs: tuple[Verb, ...]
    agents: tuple[str, ...]
    objects: tuple[str, ...]


def _nouns(text: str) -> dict[str, tuple[Noun, ...]]:
    """Read one meaning a line: names divided by commas; a plural that adds no s after a slash."""
    meanings = {}
    for line in text.strip().splitlines():
        names = [name.strip().partition("/") for name in line.split(",")]
        nouns = tuple(Noun(singular, plural or f"{singular}s") for singular, _, plural in names)
        meanings[nouns[0].singular] = nouns
    return meanings


def _action(objects: str, verbs: str, agents: str = "person") -> tuple[str, Action]:
    """Read the verbs of one meaning: present/past, divided by commas; the first names it."""
    names = [name.strip().partition("/") for name in verbs.split(",")]
    verbs_read = tuple(Verb(present, past) for present, _, past in names)
    return verbs_read[0].present, Action(verbs_read, tuple(agents.split()), tuple(objects.split()))


# kind -> meaning -> its names
NOUNS = {
    "person": _nouns("""
        man/men, guy
        woman/women, lady/ladies
        boy, lad
        girl
        child/children, kid
        baby/babies, infant
        doctor, physician
        nurse
        soldier, military man/military men
        teacher
        student
        farmer
        worker, laborer
        policeman/policemen, police officer
        king, ruler
        priest, minister
        judge
        lawyer, attorney
        writer, author
        artist, painter
        singer
        actor
        driver
        captain
        leader, chief
        friend, companion
        traveler, tourist
        scientist, researcher
    """),
    "animal": _nouns("""
        dog
        cat
        horse
        bird
        cow
        bear
        monkey
        mouse/mice
        fox/foxes
        chicken
        duck
        snake
    """),
    "food": _nouns("""
        apple
        potato/potatoes
        orange
        fish/fish
        cake
        egg
        piece of bread/pieces of bread
        piece of cheese/pieces of cheese
        bowl of rice/bowls of rice
        meal, dish/dishes
    """),
    "instrument": _nouns("""
        guitar
        piano
        drum
        organ
        bell
        song, tune
    """),
    "vehicle": _nouns("""
        car, automobile
        bicycle, bike
        boat
        ship, vessel
        truck
        plane, aircraft/aircraft
        bus/buses
        train
    """),
    "tool": _nouns("""
        box/boxes, case
        bag
        chair, seat
        table, desk
        ball
        stone, rock
        rope
        gun, weapon
        lamp, light
        hat, cap
        coat
        shirt
        cup
        bottle
        coin
        knife/knives
        clock
        mirror
    """),
    "building": _nouns("""
        house, home
        wall
        bridge
        door
        gate, entrance
        shop, store
        tower
        castle
        hospital
        window
    """),
    "text": _nouns("""
        book, volume
        letter, note
        newspaper, paper
        story/stories, tale
        report, account
        poem
        map
        picture, image
        document
        message
    """),
}

_LIVING = "person animal"
_GOODS = "vehicle tool text food"
# meaning -> its names and its sides
ACTIONS = dict(
    (
        _action("food", "cutting/cut, slicing/sliced"),
        _action("food", "cooking/cooked, preparing/prepared"),
        _action("food", "eating/eaten, consuming/consumed", _LIVING),
        _action("food", "smelling/smelled", _LIVING),
        _action("instrument", "playing/played, performing on/performed on"),
        _action("instrument", "hearing/heard, listening to/listened to", _LIVING),
        _action("vehicle", "driving/driven, steering/steered"),
        _action("vehicle tool building", "repairing/repaired, fixing/fixed"),
        _action(_GOODS, "stealing/stolen, taking away/taken away"),
        _action(_GOODS, "buying/bought, purchasing/purchased"),
        _action(_GOODS, "selling/sold, offering for sale/offered for sale"),
        _action("tool", "carrying/carried, bearing/borne"),
        _action("tool", "throwing/thrown, tossing/tossed"),
        _action("tool", "holding/held, gripping/gripped"),
        _action("tool text", "hiding/hidden, concealing/concealed"),
        _action("tool text", "finding/found, discovering/discovered", _LIVING),
        _action("tool building", "breaking/broken, damaging/damaged", _LIVING),
        _action("vehicle tool", "washing/washed, cleaning/cleaned"),
        _action("building vehicle", "painting/painted"),
        _action("building", "building/built, constructing/constructed"),
        _action("building", "protecting/protected, guarding/guarded", _LIVING),
        _action("building", "entering/entered", _LIVING),
        _action("building", "closing/closed, shutting/shut"),
        _action("text", "reading/read, studying/studied"),
        _action("text", "writing/written, composing/composed"),
        _action("text", "sending/sent, mailing/mailed"),
        _action("text building", "burning/burned, setting on fire/set on fire"),
        _action("text tool", "showing/shown, displaying/displayed"),
        _action(_LIVING, "chasing/chased, running after/run after", _LIVING),
        _action("person animal vehicle", "watching/watched, looking at/looked at", _LIVING),
        _action("person animal tool", "touching/touched", _LIVING),
        _action(_LIVING, "helping/helped, assisting/assisted"),
        _action(_LIVING, "attacking/attacked", _LIVING),
        _action(_LIVING, "following/followed, walking behind/walked behind", _LIVING),
        _action(_LIVING, "teaching/taught, training/trained"),
        _action(_LIVING, "feeding/fed, giving food to/given food"),
        _action(_LIVING, "meeting/met, welcoming/welcomed"),
        _action(_LIVING, "catching/caught, capturing/captured", _LIVING),
        _action(_LIVING, "saving/saved, rescuing/rescued", _LIVING),
        _action(_LIVING, "leading/led, guiding/guided", _LIVING),
        _action(_LIVING, "frightening/frightened, scaring/scared", _LIVING),
    )
)

_OF_THE_LIVING = (
    ("old", "aged"),
    ("young",),
    ("tired", "weary"),
    ("happy", "glad"),
    ("sad", "unhappy"),
    ("angry", "mad"),
    ("hungry",),
    ("strong", "powerful"),
    ("brave", "bold"),
    ("sick", "ill"),
    ("smart", "intelligent"),
    ("famous", "well known"),
)
_OF_THINGS = (
    ("big", "large", "huge"),
    ("small", "little", "tiny"),
    ("new",),
    ("expensive", "costly"),
    ("beautiful", "pretty", "lovely"),
    ("strange", "odd", "unusual"),
    ("red",),
    ("white",),
    ("black", "dark"),
    ("ordinary", "common"),
    ("valuable", "precious"),
    ("famous", "well known"),
)
# kind of noun -> meanings of adjectives
ADJECTIVES = {
    kind: _OF_THE_LIVING if kind in ("person", "animal") else _OF_THINGS for kind in NOUNS
}

NUMBERS = (("two", "a pair of"), ("three",), ("four",), ("five",), ("several", "a number of"))

SETTINGS = (
    ("in the garden", "in the yard"),
    ("on the street", "on the road"),
    ("near the river", "by the stream"),
    ("in the forest", "in the woods"),
    ("by the sea", "near the ocean"),
    ("on the farm",),
    ("at the market", "at the fair"),
    ("in the town", "in the city"),
    ("in the station",),
    ("in the church",),
    ("at night", "in the dark"),
    ("in the morning", "at sunrise"),
    ("in the evening", "at sunset"),
    ("in the rain", "in wet weather"),
    ("in winter", "in the cold season"),
    ("during the war", "in times of war"),
)
