"""What the quickstart shows: progress, summaries, tables."""

import sys

BAR = 24


def number(value, digits=3):
    return "-" if value is None else f"{value:.{digits}f}"


def progress_line(label, total, line, accuracy):
    """One line about a round: a bar, then what the round was like."""
    done = line["round"] + 1
    filled = BAR * done // total
    text = (f"{label} [{'#' * filled}{'.' * (BAR - filled)}] {done}/{total}"
            f"  loss {number(line['loss'])}")
    if accuracy is not None:
        text += f"  accuracy {number(accuracy)}"
    if line["orthogonality"] is not None:
        text += f"  orthogonality {number(line['orthogonality'])}"
    return text + f"  gain {number(line['gain'], 2)}"


class Progress:
    """Shows a run's rounds: in place on a terminal, else now and then.

    `every` is the number of plain lines of a run, 0 for none.
    """

    def __init__(self, label, total, every=0, stream=sys.stderr):
        self.label = label
        self.total = total
        self.every = max(1, total // every) if every else 0
        self.stream = stream
        self.live = stream.isatty()
        self.accuracy = None

    def __call__(self, line):
        self.accuracy = line.get("accuracy", self.accuracy)
        done = line["round"] + 1
        if self.live:
            # 20 updates a second are enough, and 1440 rounds pass in two.
            if done % max(1, self.total // 100) == 0 or done == self.total:
                text = progress_line(self.label, self.total, line,
                                     self.accuracy)
                self.stream.write(f"\r\x1b[K{text[:110]}")
                self.stream.flush()
        elif self.every and done % self.every == 0:
            self.stream.write(progress_line(self.label, self.total, line,
                                            self.accuracy) + "\n")

    def note(self, text):
        """A line of its own, above the bar."""
        self.end(text)

    def end(self, text):
        self.stream.write(("\r\x1b[K" if self.live else "") + text + "\n")
        self.stream.flush()


def run_line(label, entry):
    """One run in one line."""
    return (f"{label}: accuracy {number(entry['test_accuracy'])}, loss "
            f"{number(entry['train_loss'][-1])}, {entry['rounds']} rounds, "
            f"{number(entry['seconds'], 1)} s")


def chaos_summary(peace, killed, pauses):
    """Both ends, and how long the kills held the job up."""
    pauses = sorted(pauses) or [0]
    return (f"\n{len(pauses)} kills; the job went on after "
            f"{number(pauses[len(pauses) // 2], 2)} s (median), at most "
            f"{number(pauses[-1], 2)} s\n"
            f"parameters undisturbed  sha256 {peace['parameters_sha256']}\n"
            f"parameters with kills   sha256 {killed['parameters_sha256']}")


def passes(number_of):
    """How often the data is trained on. (An epoch is a life of the shards.)"""
    return f"{number_of} pass{'' if number_of == 1 else 'es'} over the data"


def summary(entry):
    """One run in full."""
    orthogonality, gain = entry["orthogonality"], entry["gain"]
    rows = [
        ("rule", f"{entry['rule']} ({entry['scope']})"),
        ("step scale", entry["step_scale"]),
        ("optimizer", f"{entry['optimizer']}, learning rate "
         f"{entry['learning_rate']:g}"),
        ("job", f"{entry['shards']} shards, {entry['workers']} workers, batch "
         f"{entry['batch_per_worker']} each"),
        ("rounds", f"{entry['rounds']} in {passes(entry['epochs'])}"),
        ("train loss", ", ".join(number(x) for x in entry["train_loss"])),
        ("orthogonality", " .. ".join(
            number(orthogonality[k]) for k in ("first", "last"))
         + f", mean {number(orthogonality['mean'])}"),
        ("gain", " .. ".join(number(gain[k]) for k in ("first", "last"))
         + f", mean {number(gain['mean'])}"),
        ("tau", number(entry["tau"], 1)),
        ("test accuracy", number(entry["test_accuracy"], 4)),
        ("parameters", f"sha256 {entry['parameters_sha256']}"),
        ("time", f"{number(entry['seconds'], 1)} s"),
    ]
    return "\n".join(f"  {name:14} {value}" for name, value in rows)


def comparison_table(rows, learning_rate):
    """rows: (label, accuracy, own best learning rate, accuracy there)."""
    head = ("", f"accuracy at lr {learning_rate:g}", "own best lr",
            "accuracy there")
    body = [(label, number(accuracy),
             "-" if best is None else f"{best:g}", number(best_accuracy))
            for label, accuracy, best, best_accuracy in rows]
    widths = [max(len(row[i]) for row in [head] + body) for i in range(4)]

    def line(row):
        cells = [row[0].ljust(widths[0])]
        cells += [row[i].rjust(widths[i]) for i in range(1, 4)]
        return "  " + "   ".join(cells)

    return "\n".join([line(head)] + [line(row) for row in body])


def sweep_table(title, accuracies):
    """accuracies: (learning rate, mean accuracy)."""
    best = max(accuracy for _, accuracy in accuracies)
    lines = [title]
    for learning_rate, accuracy in accuracies:
        mark = "  <- best" if accuracy == best else ""
        lines.append(f"  lr {learning_rate:<8g} {number(accuracy)}{mark}")
    return "\n".join(lines)
