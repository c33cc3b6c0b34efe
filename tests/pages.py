"""Read a page with the standard library alone."""

from html.parser import HTMLParser

VOID = {"meta", "br", "img", "link", "input"}


class Page(HTMLParser):
    """The elements of a page: tables as rows of texts, sections by id, and what it would load."""

    def __init__(self, text):
        super().__init__()
        self.tables, self.sections, self.loads, self.scripts, self.ids = [], {}, [], 0, []
        self.open, self.texts = [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag not in VOID:
            self.open.append((tag, given.get("id")))
        self._note(tag, given)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in {"td", "th"}:
            self.tables[-1][-1].append("")

    def handle_startendtag(self, tag, attrs):
        self._note(tag, dict(attrs))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        tags = [tag for tag, _ in self.open]
        if "style" in tags:
            return
        self.texts.append(data)
        if {"td", "th"} & set(tags):
            self.tables[-1][-1][-1] += data
        for tag, name in self.open:
            if tag == "section":
                self.sections[name] = self.sections.get(name, "") + data

    def _note(self, tag, given):
        self.scripts += tag == "script" or any(name.startswith("on") for name in given)
        self.ids += [given["id"]] if "id" in given else []
        places = [given.get(name) for name in ("src", "href", "xlink:href", "action")]
        self.loads += [place for place in places if place and not place.startswith("#")]


def read_tables(text):
    return [[[cell.strip() for cell in row] for row in table] for table in Page(text).tables]
