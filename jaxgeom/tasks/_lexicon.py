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
        man/men, fellow
        woman/women, lady/ladies
        boy, schoolboy
        girl, schoolgirl
        child/children, kid
        baby/babies, infant
        doctor, physician
        soldier, military man/military men
        teacher, instructor
        student, pupil
        farmer, farm owner
        worker, laborer
        policeman/policemen, police officer
        sailor, seaman/seamen
        thief/thieves, robber
        king, ruler
        priest, clergyman/clergymen
        lawyer, attorney
        writer, author
        friend, companion
        traveler, voyager
        scientist, researcher
    """),
    "animal": _nouns("""
        dog, hound
        cat, pussycat
        horse, steed
        bird
        cow
        wolf/wolves
        rabbit, hare
        pig, hog
    """),
    "food": _nouns("""
        apple
        potato/potatoes
        fish/fish
        cake
        loaf of bread/loaves of bread, bread loaf/bread loaves
        egg
        sandwich/sandwiches
        meal, dish/dishes
    """),
    "instrument": _nouns("""
        guitar
        piano
        drum
        song, tune
        violin, fiddle
    """),
    "vehicle": _nouns("""
        car, automobile
        bicycle, bike
        boat
        truck
        plane, aircraft/aircraft
        carriage, coach/coaches
    """),
    "tool": _nouns("""
        box/boxes, case
        bag, sack
        chair, seat
        ball
        stone, rock
        rope, cord
        gun, firearm
        lamp, light
        hat, cap
        coat, jacket
        cup
        bottle
        coin
    """),
    "building": _nouns("""
        house, home
        wall
        bridge
        door
        gate, entrance
        fence, barrier
        shop, store
        tower
    """),
    "text": _nouns("""
        book, volume
        letter, note
        newspaper, paper
        story/stories, tale
        report, account
        poem, verse
        map, chart
        picture, image
    """),
}

_LIVING = "person animal"
# meaning -> its names and its sides
ACTIONS = dict(
    (
        _action("food", "cutting/cut, slicing/sliced, chopping/chopped"),
        _action("food", "cooking/cooked, preparing/prepared"),
        _action("food", "eating/eaten, consuming/consumed", _LIVING),
        _action("food", "smelling/smelled, sniffing/sniffed", _LIVING),
        _action("instrument", "playing/played, performing on/performed on"),
        _action("instrument", "hearing/heard, listening to/listened to", _LIVING),
        _action("vehicle", "driving/driven, steering/steered"),
        _action("vehicle tool building", "repairing/repaired, fixing/fixed, mending/mended"),
        _action("vehicle tool text food", "stealing/stolen, taking away/taken away"),
        _action("vehicle tool text food", "buying/bought, purchasing/purchased"),
        _action("vehicle tool text food", "selling/sold, offering for sale/offered for sale"),
        _action("tool", "carrying/carried, bearing/borne, transporting/transported"),
        _action("tool", "throwing/thrown, tossing/tossed, hurling/hurled"),
        _action("tool text", "hiding/hidden, concealing/concealed"),
        _action("tool text", "finding/found, discovering/discovered", _LIVING),
        _action("tool building", "breaking/broken, smashing/smashed", _LIVING),
        _action("vehicle tool", "washing/washed, cleaning/cleaned"),
        _action("building vehicle", "painting/painted, coloring/colored"),
        _action("building", "building/built, constructing/constructed"),
        _action("building", "guarding/guarded, protecting/protected", _LIVING),
        _action("building", "entering/entered, stepping into/stepped into", _LIVING),
        _action("text", "reading/read, studying/studied"),
        _action("text", "writing/written, composing/composed"),
        _action("text building", "burning/burned, destroying by fire/destroyed by fire"),
        _action("text tool", "showing/shown, displaying/displayed"),
        _action(_LIVING, "chasing/chased, pursuing/pursued", _LIVING),
        _action("person animal vehicle", "watching/watched, observing/observed", _LIVING),
        _action(_LIVING, "helping/helped, assisting/assisted"),
        _action(_LIVING, "attacking/attacked, assaulting/assaulted", _LIVING),
        _action(_LIVING, "following/followed, trailing/trailed", _LIVING),
        _action(_LIVING, "teaching/taught, instructing/instructed"),
        _action(_LIVING, "feeding/fed, giving food to/given food"),
        _action(_LIVING, "greeting/greeted, welcoming/welcomed"),
        _action(_LIVING, "catching/caught, capturing/captured", _LIVING),
        _action(_LIVING, "frightening/frightened, scaring/scared", _LIVING),
    )
)

_OF_THE_LIVING = (
    ("old", "aged"),
    ("tired", "weary", "exhausted"),
    ("happy", "cheerful", "joyful"),
    ("angry", "furious"),
    ("hungry", "starving"),
    ("strong", "powerful"),
    ("brave", "courageous"),
    ("sick", "ill"),
    ("clever", "intelligent"),
)
_OF_THINGS = (
    ("big", "large", "huge"),
    ("small", "little", "tiny"),
    ("cheap", "inexpensive"),
    ("beautiful", "pretty", "lovely"),
    ("strange", "odd", "unusual"),
    ("red", "crimson"),
    ("black", "dark"),
    ("famous", "well known"),
    ("ordinary", "common"),
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
    ("on the farm", "on the ranch"),
    ("at the market", "at the fair"),
    ("in the town", "in the city"),
    ("in the station",),
    ("in the church",),
    ("at night", "in the dark"),
    ("in the morning", "at dawn"),
    ("in the evening", "at sunset"),
    ("in the rain", "in wet weather"),
    ("in winter", "in the cold season"),
    ("during the war", "in times of war"),
)
