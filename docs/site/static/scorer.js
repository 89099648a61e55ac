// How the search of the site orders results: users' pages before pages for developers, whose words are in all topics; of the reference what has the name
// that was searched for first, and what only mentions it after the guides.
const DEVELOPERS = /^(changelog|contributing|design.*|security|cuda-status|files\/.*)$/;
var Scorer = {
  score: ([page, , anchor, , score]) => score - (DEVELOPERS.test(page) ? 20 : page.startsWith("api/") && score <= 5 ? 6 : 0) - (anchor ? 1 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

// Where few pages have all words of a question, those that lack one of them follow.
if (typeof Search !== "undefined") {
  const withAllWords = Search.performTermsSearch;
  Search.performTermsSearch = (words, excluded) => {
    const found = withAllWords(words, excluded);
    if (found.length >= 5 || words.size < 2) return found;
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
