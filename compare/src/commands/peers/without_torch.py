# Appended to peers.py by tests, in place of its last line: the worker of a Python without torch and without a GPU. An output is a text at
# an address, a graph is a list of kernels, and a microsecond is one product. Command `stub` says which calls a graph will hold.
import types

UNWRITTEN_OUTPUT = "unwritten"


class Tensor:
    layout, dtype, shape, device = "strided", "torch.float16", (1,), types.SimpleNamespace(type="cuda")

    def __init__(self, value, address):
        self.value, self.address = value, address

    def contiguous(self):
        return self

    def clone(self):
        return Tensor(self.value, self.address)

    def view(self, kind):
        return self.value

    def to(self, kind):
        return self

    def is_neg(self):
        return False

    def stride(self):
        return (1,)

    def data_ptr(self):
        return self.address

    def element_size(self):
        return 2


class Graph:
    def __init__(self, keep_graph):
        self.kernels, self.calls = [], 0


class Kernel:
    """What one call adds to a graph, by the name of what it does."""

    def __init__(self, does, index, set_index):
        self.does, self.index, self.set_index, self.is_enabled = does, index, set_index, True

    def run(self, outputs):
        """Writes its output; the products that this takes."""
        output = outputs[self.index]
        if self.does == "computes" or self.does == "computes where unwritten" and output.value == UNWRITTEN_OUTPUT:
            output.value = f"output of set {self.set_index}"
            return 1
        if self.does == "computes otherwise":
            output.value = "other bits"
            return 1
        if self.does == "copies":
            output.value = outputs[self.set_index].value
        return 0


class StubDriver:
    KERNEL, WORKING, IDLE = 0, (0,), (5,)

    def __init__(self, worker):
        self.worker, self.products = worker, 0

    def synchronize(self):
        pass

    def us(self, work):
        start = self.products
        work()
        return self.products - start

    def captured(self, stream):
        return self.worker.capturing

    def nodes(self, graph):
        return list(graph.kernels)

    def kind(self, node):
        return self.KERNEL

    def instantiated(self, graph):
        return graph

    def launch(self, graph):
        outputs = self.worker.outputs_of[graph]
        self.products += sum(kernel.run(outputs) for kernel in graph.kernels if kernel.is_enabled)

    def enable(self, graph, kernel, is_enabled):
        kernel.is_enabled = is_enabled

    def destroy(self, graph):
        pass


class Stub(Worker):
    def __init__(self):
        self.torch = sys.modules["torch"] = self.stub_of_torch()
        self.device, self.driver = "cuda", StubDriver(self)
        self.capturing, self.outputs_of, self.addresses = None, {}, itertools.count(1024, 1024)
        self.output_kind, self.graphs, self.candidate, self.written = "torch.float16", {}, None, []

    def stub_of_torch(self):
        def stream(*of):
            return types.SimpleNamespace(wait_stream=lambda other: None)

        @contextlib.contextmanager
        def graph(of, stream):
            self.capturing = of
            self.outputs_of[of] = []
            yield
            self.capturing = None

        cuda = types.SimpleNamespace(
            CUDAGraph=Graph, Event=types.SimpleNamespace(elapsed_time=lambda: 0.0), Stream=stream, current_stream=stream, graph=graph,
            stream=lambda of: contextlib.nullcontext(), empty_cache=lambda: None, _sleep=lambda clocks: None,
        )
        return types.SimpleNamespace(
            Tensor=Tensor, cuda=cuda, strided="strided", int16="int16", no_grad=contextlib.nullcontext, equal=lambda a, b: a == b,
        )

    def stub(self, command):
        """`calls`: what each call of a graph does. There are `sets` sets of inputs."""
        self.sets = {"bhsd": [(Tensor(number, next(self.addresses)),) for number in range(command["sets"])]}

        def call(of):
            graph = self.capturing
            if graph is None:
                return Tensor("eager", next(self.addresses))
            outputs, does = self.outputs_of[graph], command["calls"][graph.calls]
            address = outputs[0].address if does == "returns the first output" else next(self.addresses)
            if does != "launches nothing":
                graph.kernels.append(Kernel(does, graph.calls, of.value))
            outputs.append(Tensor("captured", address))
            graph.calls += 1
            return outputs[-1]

        peer = Peer(call, HALVES)
        self.peers = {command["peer"]: peer}
        self.candidate = peer if command["candidate"] else None
        self.trusted = self.functions()

    def replace(self, command):
        """What a candidate does that tells the time itself."""
        self.torch.cuda.Event.elapsed_time = lambda: 1.0

    def host_us(self, peer):
        return [1.0]

    def change_signs(self):
        pass

    def put(self, peer, change):
        pass

    def renew(self, peer, timed):
        for output in timed.outputs:
            output.value = UNWRITTEN_OUTPUT

    def is_coded(self, output):
        return False

    def signed(self, tensor, of):
        return tensor

    def write(self, path, tensor):
        with open(path, "w") as file:
            file.write(tensor.value)


Worker = Stub
main()
