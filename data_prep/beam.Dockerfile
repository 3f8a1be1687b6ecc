# The image of a worker of Apache Beam, for engines that start containers (examples/beam/README.md). Built in the
# root of the repository; nobody has built it yet.
#
#   docker build -f data_prep/beam.Dockerfile -t REGISTRY/albert-beam .
FROM python:3.11-slim
COPY --from=apache/beam_python3.11_sdk:2.77.0 /opt/apache/beam /opt/apache/beam
COPY . /albert
RUN pip install --no-cache-dir -r /albert/requirements.txt '/albert[beam]'
ENTRYPOINT ["/opt/apache/beam/boot"]
