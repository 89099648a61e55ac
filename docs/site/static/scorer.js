// How the search of the site orders results: users' pages before pages for developers, whose words are in all topics; of the reference what has the name
// that was searched for first, and what only mentions it after the guides; pages first for whose keywords a user asks. KEYWORDS (of docs/site/keywords.txt,
// by page) stands before this.
const DEVELOPERS = /^(changelog|contributing|design.*|security|cuda-status|files\/.*)$/;
const ASKED = (new URLSearchParams(globalThis.location?.search).get("q") ?? "").toLowerCase().match(/[\w.+-]+/g) ?? [];
// How many words of the question are keywords of the page: the same, or one with an ending ("gpus", "hangs").
const asked = (page) => {
  const words = (KEYWORDS[page] ?? "").split(" ");
  return ASKED.filter((word) => word.length > 1 && words.some((each) => each === word || (each.length > 2 && word.startsWith(each) && word.length < each.length + 4))).length;
};
var Scorer = {
  score: ([page, , anchor, , score]) =>
    score - (DEVELOPERS.test(page) ? 20 : page.startsWith("api/") && score <= 5 ? 6 : 0) - (anchor ? 1 : 0) + 4 * asked(page),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

// Pages that lack one of the words of a question follow those that have all.
if (typeof Search !== "undefined") {
  const withAllWords = Search.performTermsSearch;
  Search.performTermsSearch = (words, excluded) => {
    const found = withAllWords(words, excluded);
    if (words.size < 2 || (words.size < 3 && found.length >= 5)) return found;
    const pages = new Set(found.map((result) => result[0]));
    for (const word of words) {
      for (const result of withAllWords(new Set([...words].filter((other) => other !== word)), excluded)) {
        if (pages.has(result[0])) continue;
        pages.add(result[0]);
        result[4] -= 10;
        found.push(result);
      }
    }
    return found;
  };
}
