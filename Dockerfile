# Two images of this project. Nobody has built them yet.
#
#   docker build --target cpu -t albert-tf .
#   docker build --target tpu -t albert-tf:tpu .
#   docker run --rm -v "$PWD/data:/data" albert-tf predict --model=/data/run --text='A [MASK].'
#   docker run --rm -p 8501:8501 --read-only --tmpfs=/tmp -v "$PWD/models:/models:ro" albert-tf \
#       serve --model=/models/sentiment --host=0.0.0.0
#   # --health-cmd='python -c "import urllib.request as u; u.urlopen(\"http://127.0.0.1:8501/v2/health/ready\")"'
#   docker run --rm --privileged --network=host albert-tf:tpu run_pretraining --tpu ...
FROM python:3.12.11-slim-bookworm AS base
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1
WORKDIR /albert
COPY requirements.txt ./
COPY albert_tf/environments/*.txt albert_tf/environments/

# A TPU VM: the three commands of docs/clusters.md. --privileged lets it reach the chips.
FROM base AS tpu
RUN pip install -r albert_tf/environments/tpu.txt
RUN pip install --no-deps tensorflow-text==2.20.1 tensorflow-serving-api==2.20.0
COPY . .
RUN pip install --no-deps -e .
WORKDIR /work
ENTRYPOINT ["albert-tf"]

# A CPU. The last image is that of `docker build` without --target.
FROM base AS cpu
RUN pip install -r requirements.txt
COPY . .
RUN pip install --no-deps -e .
# Not root. A mounted folder that it writes to must be writable for this user, or pass --user.
RUN useradd --uid=10001 albert
USER albert
WORKDIR /work
ENTRYPOINT ["albert-tf"]
