# headway on the processor: docker build --tag headway . && docker run --rm --volume "$PWD:/work" headway demo
FROM python:3.13-slim
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 HEADWAY_CACHE=/tmp/headway
COPY . /headway
RUN python -m pip install $(grep '^torch==' /headway/constraints.txt) && \
    python -m pip install --constraint /headway/constraints.txt /headway
RUN useradd --create-home headway && mkdir /work && chown headway /work
USER headway
WORKDIR /work
ENTRYPOINT ["headway"]
CMD ["--help"]
