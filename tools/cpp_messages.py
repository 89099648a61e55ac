"""Extracts the messages of C++ sources: each string literal together with the expressions that it is joined with.

`"cannot open " + path + ": " + reason` becomes `cannot open …: …`. Every part that is not a literal is replaced by
`…`."""

import re

TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|(?:u8|L|u|U)?R"(?P<mark>[^(\s]*)\((?P<raw>.*?)\)(?P=mark)"|(?P<text>"(?:\\.|[^"\\\n])*")\w*'
    r"|'(?:\\.|[^'\\\n])+'|^[ \t]*\#(?:[^\n]*\\\n)*[^\n]*|[A-Za-z_]\w*|\d[\w.']*|<<|>>|::|->|\+=|&&|\|\||\S",
    re.DOTALL | re.MULTILINE)  # fmt: skip
ESCAPE = {r"\"": '"', r"\n": " ", r"\t": " ", r"\r": " ", r"\\": "\\", r"\033": ""}
# Calls that concatenate their arguments.
JOINING = {"TORCH_CHECK", "TORCH_CHECK_VALUE", "TORCH_WARN", "TORCH_WARN_ONCE", "TORCH_INTERNAL_ASSERT", "str", "print_on_main"}
# Constructs whose text is only for the compiler.
UNPRINTED = {"static_assert", "deprecated", "nodiscard", "asm", "__asm__", "volatile"}
STRINGS = {"string", "string_view"}
ENDS = {",", ";", "?", ":", "return", "throw", "=", "+=", "&&", "||", "else", "<", ">", "!"}
GLUE = {"+", "<<"}


def tokens(source: str) -> list[tuple[bool, str]]:
    """Returns (is a literal, text) for each token, without comments and directives."""
    found = []
    for match in TOKEN.finditer(source):
        word = match[0]
        if match["raw"] is not None:
            found.append((True, match["raw"]))
        elif match["text"]:
            found.append((True, re.sub(r"\\(?:033|.)", lambda escape: ESCAPE.get(escape[0], escape[0]), match["text"][1:-1])))
        elif not word.startswith(("//", "/*")) and not word.lstrip().startswith("#"):
            found.append((False, word))
    return found


class Source:
    def __init__(self, text: str):
        self.tokens = tokens(text)
        self.partner = {}
        self.opener = {}  # for each token: the bracket that contains it
        open_brackets = []
        for i, (is_text, word) in enumerate(self.tokens):
            if not is_text and word in (")", "]", "}") and open_brackets:
                j = open_brackets.pop()
                self.partner[i], self.partner[j] = j, i
            self.opener[i] = open_brackets[-1] if open_brackets else None
            if not is_text and word in ("(", "[", "{"):
                open_brackets.append(i)

    def is_word(self, i: int, words) -> bool:
        return not self.tokens[i][0] and self.tokens[i][1] in words

    def callee(self, i: int) -> str:
        """Returns the function that a token is an argument of."""
        bracket = self.opener[i]
        return self.tokens[bracket - 1][1] if bracket else ""

    def extent(self, i: int, ends) -> tuple[int, int]:
        """Returns the range of the expression around a token, delimited by the enclosing brackets or by a word in
        `ends`."""
        begin, end = i, self.partner.get(i, i) + 1
        while begin > 0 and not self.is_word(begin - 1, ends | {"(", "[", "{", "}"}):
            begin = self.partner.get(begin - 1, begin - 1) if self.is_word(begin - 1, (")", "]")) else begin - 1
        while end < len(self.tokens) and not self.is_word(end, ends | {")", "]", "}"}):
            end = self.partner.get(end, end) + 1
        return begin, end

    def operands(self, begin: int, end: int, glue):
        current, i = [], begin
        while i < end:
            if self.is_word(i, glue):
                yield current
                current = []
            else:
                last = self.partner.get(i, i) if self.is_word(i, ("(", "[", "{")) else i
                current.extend(range(i, last + 1))
                i = last
            i += 1
        yield current


def messages(source: str):
    """Yields each message of a source, in order."""
    code, done = Source(source), set()
    for i, (is_text, _) in enumerate(code.tokens):
        if not is_text or i in done or code.callee(i) in UNPRINTED:
            continue
        commas = {","} if code.callee(i) in JOINING else set()
        alone = code.callee(i) in STRINGS and code.partner.get(code.opener[i]) == i + 1  # std::string("…") + …
        message = ""
        for operand in code.operands(*code.extent(code.opener[i] if alone else i, ENDS - commas), GLUE | commas):
            texts = [j for j in operand if code.tokens[j][0]]
            others = {code.tokens[j][1] for j in operand if not code.tokens[j][0]}
            if i not in texts and (not texts or others - STRINGS - {"std", "::", "(", ")", "{", "}"}):
                message += "…"
                continue
            texts = texts if i not in texts or not others - STRINGS - {"std", "::", "(", ")", "{", "}"} else [i]
            message += "".join(code.tokens[j][1] for j in texts)
            done.update(texts)
        yield re.sub("…+", "…", message)
