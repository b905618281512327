"""Tests of check_site.py: what of a built site it finds."""

import unittest

from deploy.docs import check_site


def findings(page, **others):
    files = {"a/page.html": page, "a/b.html": '<h1 id="top">B</h1>',
             "a/image.png": None}
    files.update({name.replace("_", "."): text
                  for name, text in others.items()})
    return list(check_site.check(files))


class CheckSiteTest(unittest.TestCase):

    def test_what_is_loaded_comes_from_the_site(self):
        for tag in ('<script src="%s"></script>', '<link href="%s">',
                    '<img src="%s">', '<svg><use xlink:href="%s"/></svg>',
                    "<p style=\"background: url('%s')\">"):
            for host in ("https://cdn.example/x", "//cdn.example/x",
                         "HTTP://cdn.example/x"):
                self.assertEqual(findings(tag % host),
                                 ["a/page.html loads " + host])
        self.assertEqual(findings('<img src="image.png"><img src="data:x,y">'),
                         [])
        # A click is the reader's.
        self.assertEqual(findings('<a href="https://example.org">e</a>'), [])

    def test_styles_load_nothing_from_elsewhere(self):
        for style in ('@import "https://fonts.example/x";',
                      "p { background: url(//fonts.example/x) }",
                      "@import url(/at/the/root.css);",
                      '@font-face { src: url("https://fonts.example/x") }'):
            found = findings("", style_css=style)
            self.assertEqual(len(found), 1, style)
            self.assertIn("style.css loads", found[0])
        self.assertEqual(findings("", style_css="p { src: url(a.woff) }"), [])

    def test_links_lead_somewhere(self):
        for link in ("b.html", "b.html#top", "b.html?q=1#top", "#", "../a/b.html",
                     "mailto:a@b", "image.png"):
            self.assertEqual(findings('<a href="%s">x</a>' % link), [], link)
        for link in ("c.html", "b.html#low", "#here", "../b.html"):
            self.assertEqual(len(findings('<a href="%s">x</a>' % link)), 1, link)
        self.assertEqual(findings('<p id="here"><a href="#here">x</a>'), [])
        self.assertEqual(len(findings('<img src="none.png">')), 1)


if __name__ == "__main__":
    unittest.main()
