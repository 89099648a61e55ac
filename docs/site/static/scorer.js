// How the site's search orders what it finds: guides and users' reference before pages for developers, whose words are in all topics.
const DEVELOPERS = /^(changelog|contributing|design.*|security|cuda-status|files\/.*)$/;
var Scorer = {
  score: ([page, , anchor, , score]) => score - (DEVELOPERS.test(page) ? 20 : page.startsWith("api/") ? 6 : 0) - (anchor ? 1 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
