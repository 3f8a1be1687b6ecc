// Loads a SavedModel the way TensorFlow Serving does, LoadSavedModel with the tag "serve", and
// answers the requests of its warm-up file, each checked against its signature as the server does.
//
//   serve_check MODEL_FOLDER [LIBRARY_OF_OPERATIONS.so]...
//
// Prints, for each output of each request, a line of tabs: signature, output, type, shape, values,
// each with a space after it. Strings are as in an URL: what is not a visible letter of ASCII, and %,
// is %XX. Anything wrong is one line on stderr and status 1. test_export_cpp.py compiles it.

#include <dlfcn.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "google/protobuf/unknown_field_set.h"
#include "tensorflow/cc/saved_model/loader.h"
#include "tensorflow/core/framework/tensor.pb.h"
#include "tensorflow/core/lib/io/record_reader.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/public/session_options.h"

using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;
using tensorflow::Tensor;

namespace {

// The wheel has no classes for Serving's messages, so they are read by the numbers of their fields
// (tensorflow_serving/apis/*.proto).
constexpr int kClassifyLog = 2, kRegressLog = 3, kPredictLog = 6;      // of PredictionLog
constexpr int kRequest = 1;                                            // of any ...Log
constexpr int kModelSpec = 1, kInputs = 2;                             // of any ...Request
constexpr int kSignatureName = 3;                                      // of ModelSpec
constexpr int kKey = 1, kValue = 2;                                    // of an entry of a map
constexpr int kExampleList = 1, kExamples = 1;                         // of Input, ExampleList

struct Request {
  std::string method;
  std::string signature;
  std::map<std::string, Tensor> inputs;
};

[[noreturn]] void Fail(const std::string& what) {
  std::cerr << what << std::endl;
  std::exit(1);
}

void Check(const absl::Status& status, const std::string& what) {
  if (!status.ok()) Fail(what + ": " + status.ToString());
}

// The contents of all fields of that number in a serialised message.
std::vector<std::string> Fields(const std::string& message, int number) {
  UnknownFieldSet fields;
  if (!fields.ParseFromString(message)) Fail("the warm-up file holds something else than messages");
  std::vector<std::string> found;
  for (int i = 0; i < fields.field_count(); ++i) {
    const UnknownField& field = fields.field(i);
    if (field.number() == number && field.type() == UnknownField::TYPE_LENGTH_DELIMITED) {
      found.emplace_back(field.length_delimited());
    }
  }
  return found;
}

std::string Field(const std::string& message, int number) {
  std::vector<std::string> found = Fields(message, number);
  return found.empty() ? std::string() : found[0];
}

Tensor ToTensor(const std::string& serialized) {
  tensorflow::TensorProto proto;
  Tensor tensor;
  if (!proto.ParseFromString(serialized) || !tensor.FromProto(proto)) Fail("a damaged tensor");
  return tensor;
}

std::map<std::string, Tensor> TensorsOf(const std::string& request) {
  std::map<std::string, Tensor> found;
  for (const std::string& entry : Fields(request, kInputs)) {
    found[Field(entry, kKey)] = ToTensor(Field(entry, kValue));
  }
  return found;
}

// What the server feeds for classify and regress: the examples, serialised one by one.
std::map<std::string, Tensor> ExamplesOf(const std::string& request) {
  const std::string list = Field(Field(request, kInputs), kExampleList);
  const std::vector<std::string> examples = Fields(list, kExamples);
  Tensor tensor(tensorflow::DT_STRING, {static_cast<int64_t>(examples.size())});
  for (size_t i = 0; i < examples.size(); ++i) tensor.vec<tensorflow::tstring>()(i) = examples[i];
  return {{"inputs", tensor}};
}

Request ToRequest(const std::string& log) {
  const std::map<int, std::string> methods = {
      {kClassifyLog, "classify"}, {kRegressLog, "regress"}, {kPredictLog, "predict"}};
  for (const auto& [number, name] : methods) {
    if (Fields(log, number).empty()) continue;
    const std::string request = Field(Field(log, number), kRequest);
    return {"tensorflow/serving/" + name, Field(Field(request, kModelSpec), kSignatureName),
            number == kPredictLog ? TensorsOf(request) : ExamplesOf(request)};
  }
  Fail("the warm-up file holds a log of another kind");
}

std::vector<Request> ReadWarmup(const std::string& path) {
  std::unique_ptr<tensorflow::RandomAccessFile> file;
  Check(tensorflow::Env::Default()->NewRandomAccessFile(path, &file), path);
  tensorflow::io::SequentialRecordReader reader(file.get());
  std::vector<Request> requests;
  tensorflow::tstring record;
  absl::Status status;
  while ((status = reader.ReadRecord(&record)).ok()) requests.push_back(ToRequest(record));
  if (!absl::IsOutOfRange(status)) Check(status, path);
  return requests;
}

std::string Escaped(const tensorflow::tstring& value) {
  std::string escaped;
  for (const unsigned char c : value) {
    char code[4];
    std::snprintf(code, sizeof code, "%%%02X", c);
    escaped += c > ' ' && c < 127 && c != '%' ? std::string(1, c) : code;
  }
  return escaped;
}

void Print(const std::string& signature, const std::string& name, const Tensor& tensor) {
  std::cout << signature << '\t' << name << '\t' << tensorflow::DataTypeString(tensor.dtype())
            << '\t' << tensor.shape().DebugString() << '\t';
  std::cout.precision(9);
  for (int64_t i = 0; i < tensor.NumElements(); ++i) {
    if (tensor.dtype() == tensorflow::DT_FLOAT) {
      const float value = tensor.flat<float>()(i);
      if (!std::isfinite(value)) Fail(signature + ": " + name + " is not finite");
      std::cout << value << ' ';
    } else if (tensor.dtype() == tensorflow::DT_INT32) {
      std::cout << tensor.flat<int32_t>()(i) << ' ';
    } else if (tensor.dtype() == tensorflow::DT_STRING) {
      std::cout << Escaped(tensor.flat<tensorflow::tstring>()(i)) << ' ';
    } else {
      Fail(signature + ": " + name + " is of a type that nobody prints");
    }
  }
  std::cout << '\n';
}

void Answer(const tensorflow::SavedModelBundle& bundle, const Request& request) {
  const std::string& name = request.signature;
  const auto found = bundle.GetSignatures().find(name);
  if (found == bundle.GetSignatures().end()) Fail(name + ": no such signature");
  const tensorflow::SignatureDef& signature = found->second;
  if (signature.method_name() != request.method) {
    Fail(name + " is of the method " + signature.method_name() + ", not " + request.method);
  }
  if (request.inputs.size() != static_cast<size_t>(signature.inputs().size())) {
    Fail(name + ": another number of inputs");
  }
  std::vector<std::pair<std::string, Tensor>> feeds;
  for (const auto& [key, tensor] : request.inputs) {
    const auto input = signature.inputs().find(key);
    if (input == signature.inputs().end()) Fail(name + ": no input " + key);
    if (input->second.dtype() != tensor.dtype()) Fail(name + ": " + key + " of another type");
    feeds.emplace_back(input->second.name(), tensor);
  }
  std::vector<std::string> keys, fetches;
  for (const auto& [key, info] : std::map(signature.outputs().begin(), signature.outputs().end())) {
    keys.push_back(key);
    fetches.push_back(info.name());
  }
  std::vector<Tensor> outputs;
  Check(bundle.GetSession()->Run(feeds, fetches, {}, &outputs), name);
  for (size_t i = 0; i < outputs.size(); ++i) Print(name, keys[i], outputs[i]);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) Fail("usage: serve_check MODEL_FOLDER [LIBRARY.so]...");
  for (int i = 2; i < argc; ++i) {
    if (dlopen(argv[i], RTLD_NOW | RTLD_GLOBAL) == nullptr) Fail(dlerror());
  }
  const std::string folder = argv[1];
  tensorflow::SavedModelBundle bundle;
  Check(LoadSavedModel(tensorflow::SessionOptions(), tensorflow::RunOptions(), folder, {"serve"},
                       &bundle),
        folder);
  const std::vector<Request> requests =
      ReadWarmup(folder + "/assets.extra/tf_serving_warmup_requests");
  if (requests.empty()) Fail("the warm-up file is empty");
  for (const Request& request : requests) Answer(bundle, request);
}
