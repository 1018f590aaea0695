"""A foreign engine that counts upwards; run by path, in a process of its own."""


class Driver:
    def __init__(self, facts):
        self._step = facts["step"]

    def run(self, prompts, num_tokens, temperature, num_streams, setting):
        print("noise on standard output")
        if setting == "dies":
            raise SystemExit("the toy ends here")
        if setting == "fails":
            raise ValueError("no such toy")
        ids = [
            [prompt[-1] + self._step * i for i in range(1, num_tokens + 1)] for prompt in prompts
        ]
        return 0.5, ids

    def close(self):
        pass
