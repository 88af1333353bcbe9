"""Runs a TFLite file with Arm NN for another process.

`serve.py` alone prints a line with Arm NN's version and its backends. `serve.py FILE BACKEND` loads the file and prints
a line: "ready", or the reason why not. Then it reads the bytes of all inputs from the standard input and writes those of
all outputs to the standard output, again and again.
"""

import os
import sys

# Arm NN prints to the standard output, which belongs to the other process.
out = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)


def say(text):
    out.write(" ".join(str(text).split()).encode() + b"\n")
    out.flush()


def main():
    import numpy
    import pyarmnn

    runtime = pyarmnn.IRuntime(pyarmnn.CreationOptions())
    spec = runtime.GetDeviceSpec()
    if len(sys.argv) < 3:
        listed = str(spec).split("[", 1)[-1].split("]", 1)[0]
        say(f"{pyarmnn.ARMNN_VERSION} {listed.replace(',', ' ')}")
        return
    parser = pyarmnn.ITfLiteParser()
    network = parser.CreateNetworkFromBinaryFile(sys.argv[1])
    inputs = [parser.GetNetworkInputBindingInfo(0, name) for name in parser.GetSubgraphInputTensorNames(0)]
    outputs = [parser.GetNetworkOutputBindingInfo(0, name) for name in parser.GetSubgraphOutputTensorNames(0)]
    backend = pyarmnn.BackendId(sys.argv[2])
    optimized, _ = pyarmnn.Optimize(network, [backend], spec, pyarmnn.OptimizerOptions())
    identifier, _ = runtime.LoadNetwork(optimized)
    kinds = {
        pyarmnn.DataType_Float32: numpy.float32,
        pyarmnn.DataType_QAsymmS8: numpy.int8,
        pyarmnn.DataType_QSymmS16: numpy.int16,
        pyarmnn.DataType_Signed32: numpy.int32,
    }
    say("ready")
    read = sys.stdin.buffer.read
    while True:
        arrays = []
        for _, info in inputs:
            bytes_ = read(info.GetNumBytes())
            if len(bytes_) < info.GetNumBytes():
                return
            shape = tuple(info.GetShape())
            arrays.append(numpy.frombuffer(bytes_, kinds[info.GetDataType()]).reshape(shape))
        given = pyarmnn.make_input_tensors(inputs, arrays)
        made = pyarmnn.make_output_tensors(outputs)
        runtime.EnqueueWorkload(identifier, given, made)
        for array in pyarmnn.workload_tensors_to_ndarray(made):
            out.write(numpy.ascontiguousarray(array).tobytes())
        out.flush()


try:
    main()
except Exception as error:  # The other process shows the reason, whatever it is.
    say(f"error {type(error).__name__}: {error}")
    sys.exit(1)
