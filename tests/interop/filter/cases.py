"""Filters and property maps made up from a seed, for asking two implementations the same thing.

Three sorts of filters: well-formed ones, the same with a token changed, and token soup. Literals,
names and property values come from small pools, rich in what parsers disagree on, so that a filter
often meets a value that it can say something about.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

NAMES = ("a", "b", "c", "TAGS", "_x$1", "now", "LIKE", "Nota", "l", "e1")

INTEGERS = (
    *("0", "1", "2", "5", "9", "10", "100", "007", "0L", "5L", "5l", "12345678901"),
    *("2147483647", "2147483648", "4294967296", "9223372036854775807", "9223372036854775808"),
    "99999999999999999999999",
)
FLOATS = (
    *("1.5", "1.", ".5", "5.0", "2e0", "1e1", "1E+2", "1e-2", "00.5", "09e0", "0.0", "0.", ".0"),
    *("1e-400", "1e309", "1.7976931348623157e308", "4.9e-324", "2.4703282292062327e-324", "3e-324"),
    *("0.1", "0.30000000000000004", "9007199254740993.0", "2147483647.0", "1.5f", "1e", "1.e1"),
)
SMALL_NUMBERS = tuple(map(str, range(12)))
PLAIN_INTEGERS = (
    "0",
    "5L",
    "100",
    "2147483647",
    "2147483648",
    "12345678901",
    "9223372036854775807",
)
PLAIN_FLOATS = ("1.5", "1.", ".5", "5.0", "1e1", "1E+2", "00.5", "4.9e-324", "0.1", "2147483647.0")
TEXTS = (
    *("", "a", "eu", "us", "b", "true", "TRUE", "false", "5", "5.0", "1.5", " 5 ", "five", "it's"),
    *("''", "%", "e_", "\\", "a\nb", "/*x*/", "--", "\u8ba2\u5355", "\U0001f600", "\u00a0"),
    *("e\u0301", "\u00e9", "\t", "NaN", "AND", "(", "\ufeff"),
)
NUMERALS = (
    *("0", "-0", "+0", "00", "1", "+1", "-1", "2", "5", "5 ", " 5", "+5", "-5", "05", "5.", "5.0"),
    *("9", "10", "100", "-2147483648", "2147483647", "2147483648", "-2147483649", "+2147483647"),
    *("9223372036854775807", "-9223372036854775808", "9223372036854775808", "12345678901"),
    *("00000000000000000000000000000005", "99999999999999999999999", "5000000000", "--5", "+-5"),
    *("+", "-", ".", "", " ", "5L", "5l", "5f", "5D", "5.5d", "5e", "5e0", "5E1", "5e+1", "5e-1"),
    *("1_0", "1,5", "0x10", "0x1p4", "0X1.8P1", "-0x.8p1", "0x.p1", "0xp1", "0x1p", "0x1.p1f"),
    *("0x1p1024", "0x1p-1074", "0x1p-1075", "0x1p99999999999", "0x0p99999999999", "0x1p+1d"),
    *(
        "0x1.fffffffffffff8p0",
        "0x1.fffffffffffff7p0",
        "0x1p-99999999999",
        "0x1P0000000000000000001",
    ),
    *("1.5", "-1.5", ".5", "+.5", "-.5e1", "1e309", "-1e309", "1e-400", "-1e-400", "1e99999999999"),
    *(
        "NaN",
        "-NaN",
        "+NaN",
        "nan",
        "NaNd",
        "Infinity",
        "-Infinity",
        "+Infinity",
        "inf",
        "infinity",
    ),
    *("Infinityf", "-0.0", "0.0", "0e5", "+0.0", "0.1", "0.30000000000000004", "1e23", "2.5e-324"),
    *("4.9e-324", "2.4703282292062327e-324", "2.4703282292062328e-324", "1.7976931348623159e308"),
    *("9007199254740993", "9007199254740992", "9007199254740991", "123456789.123456789123456789"),
    *("\u0663", "-\u0663", "\uff15", "+\uff15", "\U0001d7d3", "5\u0663", "\u0663.5", "\u06f5e1"),
    *(
        "5\u00a0",
        "\u00a05",
        "\u20005",
        "\x005\x00",
        "\x1f5",
        "\t5\n",
        "\v5",
        "5\x7f",
        "\u2155",
        "5 5",
    ),
    *(
        "1d",
        "1F",
        "d",
        "f",
        "e5",
        "1e5.5",
        "1.2.3",
        "0b1",
        "1__",
        "\u0967\u0966",
        "true5",
        "0x",
        "x",
    ),
)
WORDS = (
    *("AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "TRUE", "FALSE", "CONTAINS", "STARTSWITH"),
    *("ENDSWITH", "and", "Or", "nOT", "between", "is", "null", "true", "False", "contains", "in"),
)
SYMBOLS = ("=", "<>", ">", ">=", "<", "<=", "(", ")", ",", "+", "-")
ODDITIES = (
    *("!", "!=", "==", "=>", "=<", "<=>", "><", "*", "/", "%", "--", "-- x\n", "--\r", "/* x */"),
    *("/**/", "/*/", "/* *", "/***/", "/* * / */", "--\u2028", "'", "''", "'''", '"a"', "`", "{"),
    *("}", "[", ".", "..", "a.b", "a-b", "#", "@", ":", ";", "?", "|", "||", "&&", "~", "^", "\\"),
    *("\v", "\u00a0", "\ufeff", "\u3000", "\u2028", "\u8ba2", "0x1F", "1.5f", "5and", "5AND", "$"),
    *("_", "$a", "a$", "1a", "LIKE", "now()", "\x00", "\x1a", "\x7f", "\u00e9", "n\u00f6t"),
)
SIGNS = ("", "", "", "-", "+", "--")
SUFFIXES = ("", "", "", "", "f", "d", "L", " ", "\u00a0")
ALPHABET = "aeE05'\"\\%_ .-+\u00e9\u0130\u0131\u00df\u8ba2\u0660\uff10\U0001f600\x01\x7f"
BLANKS = (" ", " ", " ", " ", "", "  ", "\t", "\n", "\r\n", "\f", " /* c */ ", " --c\n", "--c\r\n")


class Case(NamedTuple):
    """One question: this filter on a message with these properties."""

    filter: str
    properties: dict[str, str]


def cases(seed: int, count: int, per_filter: int = 4) -> Iterator[Case]:
    """`count` cases, the same ones for the same seed; `per_filter` property maps a filter."""
    source = _Source(random.Random(seed))
    made = 0
    while made < count:
        text = source.filter()
        for _ in range(min(per_filter, count - made)):
            yield Case(text, source.properties())
            made += 1


class _Source:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def properties(self) -> dict[str, str]:
        share = self._rng.choice((0.0, 0.5, 0.9, 1.0))
        pools = (NUMERALS, NUMERALS, TEXTS, SMALL_NUMBERS)
        return {
            name: self._rng.choice(self._rng.choice(pools))
            if self._rng.random() < 0.8
            else self._made_up()
            for name in NAMES
            if self._rng.random() < share
        }

    def _made_up(self) -> str:
        """A value that no pool has: a numeral of any form, or a text of odd characters."""
        if self._rng.random() < 0.6:
            return self._rng.choice(SIGNS) + self._numeral() + self._rng.choice(SUFFIXES)
        return "".join(self._rng.choices(ALPHABET, k=self._rng.randint(0, 4)))

    def _numeral(self) -> str:
        digits = "".join(self._rng.choices("0123456789", k=self._rng.choice((1, 2, 3, 10, 19, 25))))
        match self._rng.randrange(8):
            case 0:
                return digits + "." + digits[:3]
            case 1:
                return digits + self._rng.choice("eE") + self._rng.choice(SIGNS) + digits[:3]
            case 2:
                return "." + digits
            case 3:
                return self._rng.choice(("0x", "0X", "0", "0b", "0o")) + digits
            case 4:
                return digits.lstrip("0") + self._rng.choice("lL")
        return digits

    def filter(self) -> str:
        sort = self._rng.random()
        if sort < 0.08:
            return self._join([self._any_token() for _ in range(self._rng.randint(1, 8))])
        if sort < 0.16:
            return self._join(self._odd())
        tokens = self._condition(self._rng.choice((0, 1, 1, 2, 3)))
        if sort < 0.32:
            self._damage(tokens)
        return self._join(tokens)

    def _join(self, tokens: list[str]) -> str:
        """The tokens with blanks between them; two words are kept apart, mostly."""
        if self._rng.random() < 0.7:
            return " ".join(tokens)
        return "".join(token + self._rng.choice(BLANKS) for token in tokens)

    def _damage(self, tokens: list[str]) -> None:
        for _ in range(self._rng.choice((1, 1, 1, 2))):
            place = self._rng.randrange(len(tokens) + 1)
            action = self._rng.choice(("insert", "insert", "drop", "replace", "cut", "append"))
            if action == "insert":
                tokens.insert(place, self._any_token())
            elif action == "append":
                tokens.append(self._any_token())
            elif action == "cut" and self._rng.random() < 0.3:
                del tokens[place:]
            elif place < len(tokens) and action == "drop":
                del tokens[place]
            elif place < len(tokens):
                tokens[place] = self._any_token()

    def _any_token(self) -> str:
        pool = self._rng.choice((NAMES, INTEGERS, FLOATS, WORDS, WORDS, SYMBOLS, ODDITIES, None))
        return self._rng.choice(pool) if pool else self._text()

    def _text(self) -> str:
        value = self._rng.choice(self._rng.choice((TEXTS, TEXTS, NUMERALS)))
        return "'" + value.replace("'", "''") + "'"

    def _word(self, word: str) -> str:
        return word if self._rng.random() < 0.8 else self._rng.choice((word.lower(), word.title()))

    # Filters that are seldom written but mean something, as lists of tokens

    def _odd(self) -> list[str]:
        rng, name = self._rng, self._rng.choice(NAMES[:4])
        literal = rng.choice(("5", "'x'", "TRUE", "NULL", "-5", "1.5", "''", name))
        match rng.randrange(8):
            case 0:
                signs = [rng.choice("+-") for _ in range(rng.randint(1, 6))]
                return [name, rng.choice((">", "=", "<>", "<=")), *signs, self._numeral()]
            case 1:
                return [*["NOT"] * rng.randint(1, 5), name, *self._tail(name)]
            case 2:
                texts = [self._text() for _ in range(rng.choice((1, 1, 2, 30)))]
                if rng.random() < 0.3:
                    texts.append(rng.choice(("NULL", "5", "TRUE", "b", "( 'a' )", "- 5", "")))
                listed = [each for text in (*texts, texts[0]) for each in (",", text)][1:]
                return [name, *self._negation(), "IN", "(", *listed, ")"]
            case 3:
                low, high = self._number(), self._number()
                return [name, *self._negation(), "BETWEEN", *low, "AND", *high, *self._tail(name)]
            case 4:
                return [literal, "IS", *self._negation(), "NULL", *self._tail(literal)]
            case 5:
                left, right = self._condition(0), rng.choice(("TRUE", "FALSE", name, "(a > 1)"))
                return ["(", *left, ")", rng.choice(("=", "<>")), right]
            case 6:
                needle = "'" + "".join(rng.choices(["''", "a", "e", "\\", "%"], k=3)) + "'"
                part = rng.choice(("CONTAINS", "STARTSWITH", "ENDSWITH"))
                return [literal, *self._negation(), part, rng.choice((needle, "''", "''''"))]
            case _:
                comments = [rng.choice(("/* '*/", "--'\n", "/**/", "/*\n*/")) for _ in range(3)]
                mixed = [name, rng.choice((">", "=")), self._numeral()]
                return [each for pair in zip(comments, mixed, strict=True) for each in pair]

    def _tail(self, operand: str) -> list[str]:
        """How a filter may go on."""
        return self._rng.choice(
            (
                [],
                [],
                ["=", "TRUE"],
                ["<>", operand],
                ["IS", "NULL"],
                [">", "3"],
                ["AND", operand, "IS", "NOT", "NULL"],
                ["OR", "b", "=", "'x'"],
            )
        )

    # Well-formed filters, as lists of tokens

    def _condition(self, depth: int) -> list[str]:
        simple: list[Callable[[], list[str]]] = [
            *(self._ordering, self._ordering, self._between, self._membership, self._equality),
            *(self._equality, self._matching, self._null_test, self._bare),
        ]
        if depth == 0 or self._rng.random() < 0.1:
            return self._rng.choice(simple)()
        left, right = self._condition(depth - 1), self._condition(depth - 1)
        match self._rng.randrange(10):
            case 0:
                return ["NOT", "(", *left, ")"]
            case 1:
                return ["(", *left, ")", self._rng.choice(("=", "<>")), "(", *right, ")"]
            case 2:
                return [self._word("NOT"), *left]
            case 3:
                return [*left, self._rng.choice(("=", "<>")), *right]
            case 4:
                return ["(", *left, ")", self._word(self._rng.choice(("AND", "OR"))), *right]
            case _:
                return [*left, self._word(self._rng.choice(("AND", "OR"))), *right]

    def _number(self) -> list[str]:
        sign = self._rng.choice(([], [], [], ["-"], ["-"], ["+"], ["-", "-"], ["- -"]))
        odd = self._rng.random() < 0.1
        pools = (INTEGERS, FLOATS) if odd else (SMALL_NUMBERS, PLAIN_INTEGERS, PLAIN_FLOATS)
        return [*sign, self._rng.choice(self._rng.choice(pools))]

    def _operand(self) -> list[str]:
        match self._rng.randrange(12):
            case 0 | 1 | 2 | 3 | 4 | 5:
                return [self._rng.choice(NAMES[:4])]
            case 6 | 7 | 8:
                return self._number()
            case 9:
                return ["(", *self._operand(), ")"]
            case 10:
                return [self._rng.choice("+-"), *self._operand()]
            case _:
                return self._wild_operand()

    def _wild_operand(self) -> list[str]:
        match self._rng.randrange(4):
            case 0:
                return [self._text()]
            case 1:
                return [self._word(self._rng.choice(("TRUE", "FALSE", "NULL")))]
            case 2:
                return [self._word("NOT"), *self._operand()]
            case _:
                return [self._rng.choice(("", "-", "NOT")), "(", *self._condition(0), ")"]

    def _ordering(self) -> list[str]:
        return [*self._operand(), self._rng.choice((">", ">=", "<", "<=")), *self._operand()]

    def _equality(self) -> list[str]:
        right = self._operand() if self._rng.random() < 0.5 else [self._text()]
        if self._rng.random() < 0.15:
            right = [self._word(self._rng.choice(("TRUE", "FALSE")))]
        return [*self._operand(), self._rng.choice(("=", "<>")), *right]

    def _negation(self) -> list[str]:
        return [self._word("NOT")] if self._rng.random() < 0.35 else []

    def _between(self) -> list[str]:
        low, high = self._operand(), self._operand()
        between, conjunction = self._word("BETWEEN"), self._word("AND")
        return [*self._operand(), *self._negation(), between, *low, conjunction, *high]

    def _membership(self) -> list[str]:
        left = [self._rng.choice(NAMES[:4])] if self._rng.random() < 0.9 else self._operand()
        texts = [self._text() for _ in range(self._rng.randint(1, 4))]
        listed = [token for text in texts for token in (",", text)][1:]
        return [*left, *self._negation(), self._word("IN"), "(", *listed, ")"]

    def _matching(self) -> list[str]:
        part = self._word(self._rng.choice(("CONTAINS", "STARTSWITH", "ENDSWITH")))
        return [*self._operand(), *self._negation(), part, self._text()]

    def _null_test(self) -> list[str]:
        return [*self._operand(), self._word("IS"), *self._negation(), self._word("NULL")]

    def _bare(self) -> list[str]:
        return [self._rng.choice(NAMES)]
