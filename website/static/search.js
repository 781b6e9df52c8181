// A better order of search results, and results for words that are on no page together.
//
// Sphinx shows the pages that have every word of the query, all with about the same score, and
// headings that have the query as it was typed. Here headings are also found by their words, a page
// may lack one word if none has all, and histories and formats come after what users read.
"use strict";

const LATER = {
  changelog: 8,
  benchmarks: 6,
  architecture: 4,
  contributing: 4,
  formats: 3,
  security: 3,
};

const headingsWith = (words) => {
  const stemmer = new Stemmer();
  const { alltitles, docnames, filenames, titles } = Search._index;
  const results = [];
  for (const [heading, places] of Object.entries(alltitles)) {
    const stems = new Set(splitQuery(heading.toLowerCase()).map((word) => stemmer.stemWord(word)));
    const share = [...words].filter((word) => stems.has(word)).length / words.size;
    if (share < 0.5) continue;
    for (const [page, anchor] of places) {
      const name = titles[page] === heading ? heading : `${titles[page]} > ${heading}`;
      const place = anchor === null ? "" : `#${anchor}`;
      const score = Scorer.title * share + (share === 1 ? 3 : 0);
      const kind = SearchResultKind.title;
      results.push([docnames[page], name, place, null, score, filenames[page], kind]);
    }
  }
  return results;
};

if (typeof Search !== "undefined") {
  const pagesWithAll = Search.performTermsSearch;

  Search.performTermsSearch = (words, excluded) => {
    let pages = pagesWithAll(words, excluded);
    if (pages.length === 0 && words.size > 1) {
      const fewer = [...words].map((left) => new Set([...words].filter((word) => word !== left)));
      pages = fewer.flatMap((some) => pagesWithAll(some, excluded));
    }
    return words.size === 0 ? pages : [...pages, ...headingsWith(words)];
  };

  Scorer.score = ([page, , , , score]) =>
    score - (LATER[page] ?? 0) + (page === "questions" ? 2 : 0);
}
