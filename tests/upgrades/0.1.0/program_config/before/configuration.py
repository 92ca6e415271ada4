import json


class Configuration:
    """Settings of a file; things are made by the name that it has for them."""

    def __init__(self, settings):
        self.settings = settings

    @classmethod
    def from_file(cls, path):
        with open(path) as file:
            return cls(json.load(file))

    def __getitem__(self, name):
        return self.settings[name]

    def init_obj(self, name, module, *args, **kwargs):
        chosen = dict(self[name]["args"])
        chosen.update(kwargs)
        return getattr(module, self[name]["type"])(*args, **chosen)
