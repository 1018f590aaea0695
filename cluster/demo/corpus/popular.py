"""Which objects of Python are asked for most: our choice, in names, classes and whole modules."""

BUILTIN = 8.0  # a name without a module
USUAL = 1.0
WEIGHTS = {  # a name's own, or of the longest name that it begins with
    30.0: "print len open sorted enumerate zip map filter range sum min max abs round isinstance "
    "issubclass type input int float str list dict set tuple bool any all iter next reversed hash "
    "id dir vars getattr setattr hasattr repr ord chr bin hex divmod pow eval exec format super "
    "property staticmethod classmethod callable slice object help ValueError TypeError KeyError "
    "IndexError AttributeError StopIteration RuntimeError OSError FileNotFoundError "
    "os.path os.listdir os.getcwd os.makedirs os.mkdir os.remove os.rename os.walk os.getenv "
    "os.environ os.system os.chdir sys.argv sys.exit sys.path sys.stdin sys.stdout sys.version "
    "json.dumps json.loads json.dump json.load collections.OrderedDict collections.Counter "
    "collections.defaultdict collections.deque collections.namedtuple collections.ChainMap "
    "itertools.chain itertools.product itertools.count itertools.cycle itertools.groupby "
    "itertools.islice itertools.permutations itertools.combinations itertools.zip_longest "
    "itertools.accumulate itertools.repeat functools.partial functools.reduce functools.lru_cache "
    "functools.wraps functools.cache math.sqrt math.floor math.ceil math.sin math.cos math.log "
    "math.gcd math.pi math.factorial math.isclose random.choice random.choices random.randint "
    "random.random random.shuffle random.sample random.uniform random.seed time.sleep time.time "
    "time.perf_counter time.monotonic time.strftime re.match re.search re.findall re.sub re.split "
    "re.compile re.fullmatch re.escape copy.copy copy.deepcopy heapq.heappush heapq.heappop "
    "heapq.heapify heapq.merge bisect.bisect_left glob.glob subprocess.run subprocess.Popen "
    "asyncio.run asyncio.gather asyncio.sleep asyncio.create_task asyncio.wait_for asyncio.Queue "
    "datetime.datetime.now datetime.datetime.strftime datetime.timedelta pathlib.Path.exists "
    "pathlib.Path.read_text pathlib.Path.mkdir pathlib.Path.glob contextlib.contextmanager "
    "contextlib.suppress dataclasses.dataclass dataclasses.field threading.Lock threading.Thread "
    "threading.Event queue.Queue shutil.copy shutil.rmtree shutil.move csv.reader csv.writer "
    "csv.DictReader logging.info logging.getLogger logging.basicConfig argparse.ArgumentParser "
    "tempfile.TemporaryDirectory statistics.mean base64.b64encode urllib.parse.quote "
    "urllib.parse.urlencode urllib.parse.urlparse uuid.uuid4 string.Template textwrap.dedent "
    "operator.itemgetter enum.Enum struct.pack struct.unpack pprint.pprint timeit.timeit",
    8.0: "bytes math json collections itertools functools random time re copy heapq bisect glob "
    "os.rmdir os.sep os.scandir os.stat os.getpid os.cpu_count os.urandom sys.modules sys.stderr "
    "sys.platform sys.maxsize sys.executable sys.getsizeof sys.getrecursionlimit sys.byteorder "
    "subprocess.check_output subprocess.CompletedProcess asyncio.wait asyncio.Lock asyncio.Event "
    "asyncio.Semaphore asyncio.timeout asyncio.Task asyncio.TaskGroup asyncio.shield "
    "asyncio.to_thread asyncio.open_connection asyncio.Future datetime.date datetime.datetime "
    "datetime.time datetime.timezone pathlib.Path pathlib.PurePath contextlib dataclasses "
    "enum.auto enum.IntEnum threading.RLock threading.Semaphore queue shutil csv.writer "
    "csv.DictWriter logging.debug logging.warning logging.error hashlib base64 tempfile "
    "statistics string textwrap operator urllib.parse uuid secrets timeit pprint struct",
    2.0: "os sys asyncio datetime pathlib subprocess threading csv logging argparse enum "
    "typing io pickle decimal fractions collections.abc abc socket sqlite3 zipfile gzip "
    "urllib.request http.client http.server concurrent.futures multiprocessing unittest "
    "traceback warnings weakref inspect types array calendar configparser difflib fnmatch "
    "getpass html ipaddress platform signal stat tarfile memoryview frozenset",
}
NOT_ASKED = frozenset(  # left Python after 3.11, or never were for everybody
    "test aifc asynchat asyncore audioop cgi cgitb chunk crypt imghdr imp lib2to3 mailcap msilib "
    "nis nntplib ossaudiodev pipes smtpd sndhdr spwd sunau telnetlib uu xdrlib distutils winreg "
    "winsound msvcrt curses tkinter turtle bdb binhex symtable turtledemo".split()
)
_BY_NAME = {name: weight for weight, names in WEIGHTS.items() for name in names.split()}


def weight(name: str) -> float:
    """How often a name is asked for, against any other; 0 is never.

    >>> weight("os.path.join"), weight("os.fork"), weight("Warning"), weight("test.support.run")
    (30.0, 2.0, 8.0, 0.0)
    """
    parts = name.split(".")
    if parts[0] in NOT_ASKED:
        return 0.0
    prefixes = [".".join(parts[:num]) for num in range(len(parts), 0, -1)]
    usual = BUILTIN if len(parts) == 1 else USUAL
    return next((_BY_NAME[prefix] for prefix in prefixes if prefix in _BY_NAME), usual)
